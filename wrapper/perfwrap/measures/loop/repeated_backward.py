"""Backward passes that visit the same graph again, because each loss has its own pass."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.journal_format import GRAD
from perfwrap.measures.account.lines import Line, parse_key
from perfwrap.measures.account.loop_events import Events, Flags, Integers, thread_spans
from perfwrap.measures.steps.steps import Steps
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline

BETWEEN = ("optimizer", "scaler_step", "zero_grad", "clip", "data")
"""Operations, besides model calls, that separate backward passes: the next pass has another graph, or each gradient is
used separately."""


class RepeatedBackward(Struct, frozen=True):
    """Consecutive passes, all but the last of which keep the graph; means over the steady, detailed steps."""

    lines: tuple[Line, ...]
    """Where they start: those that keep the graph first, the busiest of them in front."""
    passes: float
    """How many passes there are in one sequence."""
    ns_per_step: float
    """Their total time."""
    vain_ns: float
    """The time of all but the longest of each sequence: one combined pass visits the shared part once."""
    forwards: float
    """Model calls with gradients before a sequence in its step: with one call the passes share its graph."""


def find_repeated_backward(
    timeline: Timeline, trainer: Trainer, steps: Steps, keeping: Collection[Line], models: Collection[str]
) -> RepeatedBackward | None:
    """Return the sequences of backward passes, in steps that clear their gradients; None if there are none.

    ``keeping`` are the lines that keep the graph. ``models`` are the names of modules with parameters: modules without
    (loss functions) do not split a sequence.
    """
    table = steps.table.filter("steady", "detailed")
    names = [parse_key(name) for name in steps.events.names]
    kept = {(line.file, line.line) for line in keeping}
    keeps = np.array([line is not None and (line.file, line.line) in kept for line in names], dtype=bool)
    passes = steps.events.backward
    if table.is_empty() or not len(passes) or not keeps.any():
        return None
    spans = thread_spans(timeline, trainer)
    calls = _calls(spans, passes, models)
    found = _sequences(_passes_of_steps(passes, keeps, table, spans, calls))
    if found.is_empty():
        return None
    its_step = table["start"].to_numpy()[found["step"].to_numpy()]
    before = np.searchsorted(calls, found["start"].to_numpy()) - np.searchsorted(calls, its_step)
    keys, counts = np.unique(found["key"].explode().to_numpy(), return_counts=True)
    busiest = keys[np.lexsort((keys, -counts, ~keeps[keys]))].tolist()
    lines = (names[key] for key in busiest)
    return RepeatedBackward(
        lines=tuple(line for line in lines if line is not None),
        passes=float(np.mean(found["passes"].to_numpy())),
        ns_per_step=float(found["ns"].sum()) / table.height,
        vain_ns=float(found["vain"].sum()) / table.height,
        forwards=float(np.mean(before)),
    )


def _calls(spans: pl.DataFrame, passes: Events, models: Collection[str]) -> Integers:
    """Return when models were called with gradients, sorted; without checkpointed parts inside a backward pass."""
    is_model = (pl.col("operation") == "forward") & pl.col("name").is_in(list(models))
    calls = spans.filter(is_model, pl.col("value") & GRAD != 0)["start"].to_numpy()
    at = np.maximum(np.searchsorted(passes.start, calls, "right") - 1, 0)
    return np.sort(calls[(calls < passes.start[at]) | (calls >= passes.end[at])])


def _passes_of_steps(
    passes: Events, keeps: Flags, table: pl.DataFrame, spans: pl.DataFrame, calls: Integers
) -> pl.DataFrame:
    """Return the passes in a step that clears gradients, with the number of separating events before each.

    If clearing gradients is not recorded, it may happen between two passes.
    """
    others = spans.filter(pl.col("operation").is_in(BETWEEN))["start"].to_numpy()
    between = np.sort(np.concatenate([calls, others]))
    cleared = np.sort(spans.filter(pl.col("operation") == "zero_grad")["start"].to_numpy())
    starts, ends = table["start"].to_numpy(), table["end"].to_numpy()
    step = np.searchsorted(starts, passes.start, "right") - 1
    inside = (step >= 0) & (passes.end <= ends[np.maximum(step, 0)])
    inside &= np.searchsorted(cleared, ends)[step] > np.searchsorted(cleared, starts)[step]
    passes, step = passes.only(inside), step[inside]
    return pl.DataFrame(
        {
            "step": step,
            "place": np.searchsorted(between, passes.start),
            "start": passes.start,
            "key": passes.key,
            "ns": passes.end - passes.start,
            "keeps": keeps[passes.key],
        }
    )


def _sequences(passes: pl.DataFrame) -> pl.DataFrame:
    """Return the sequences of several consecutive passes, all but the last of which keep the graph."""
    return (
        passes.sort("start")
        .group_by("step", "place", maintain_order=True)
        .agg(
            pl.len().alias("passes"),
            pl.col("keeps").slice(0, pl.len() - 1).all().alias("kept"),
            pl.col("ns").sum(),
            (pl.col("ns").sum() - pl.col("ns").max()).alias("vain"),
            pl.col("start").first(),
            pl.col("key"),
        )
        .filter(pl.col("passes") > 1, "kept")
    )
