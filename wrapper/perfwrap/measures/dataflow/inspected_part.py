"""The part of the training loop that the dataflow windows are about.

One thread may train several models after each other. A window shows the step of one of these trainings. The others are
taken for the same work if their optimizers have the same classes and numbers of parameters, as in cross-validation.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from perfwrap.measures.account.loop_events import Flags, Integers
from perfwrap.measures.account.loop_figures import mean_step_ns
from perfwrap.measures.dataflow.dataflow import Dataflow
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.steps import Steps, find_steps
from perfwrap.measures.trainers import Trainer

FACTS = ("class", "parameters")
"""The facts of an optimizer that say what it trains."""


def find_loop_share(evidence: Evidence, trainer: Trainer, flow: Dataflow) -> float:
    """Return the share of the training loop that steps as in the window are, 0 to 1; waits may be outside of it."""
    steps = evidence.get(find_steps, trainer)
    table, loop_ns = steps.table.filter("steady"), mean_step_ns(evidence, trainer) * steps.steady
    if len(steps.gaps[0]):
        alike = _like_the_window(evidence, trainer, steps, flow)
        table = table.filter(pl.Series(alike[_training(steps, table["end"].to_numpy())], dtype=pl.Boolean))
        if table.is_empty():
            return 0.0
    usual = table.filter(~pl.col("windowed"))["duration"].median()
    return min(1.0, float(usual) * table.height / loop_ns) if loop_ns and usual is not None else 1.0  # type: ignore[arg-type]


def _training(steps: Steps, moments: Integers) -> Integers:
    """Return the number of the training that each moment is in."""
    return np.searchsorted(np.sort(steps.gaps[1]), moments, side="left")


def _like_the_window(evidence: Evidence, trainer: Trainer, steps: Steps, flow: Dataflow) -> Flags:
    """Return of each training whether its optimizers are like those of the window's."""
    timeline = evidence.timeline
    facts = timeline.facts.filter(
        pl.col("track") == trainer.process, pl.col("key").str.starts_with("optimizer/")
    )
    known = dict(zip(facts["key"].to_list(), facts["value"].to_list(), strict=True))
    columns = pl.col("name", "start")
    is_step = (pl.col("track") == trainer.thread) & (pl.col("operation") == "optimizer")
    stepped = pl.concat([each.filter(is_step).select(columns) for each in (timeline.spans, timeline.sums)])
    kinds: list[set[tuple[object, ...]]] = [set() for _ in range(len(steps.gaps[0]) + 1)]
    of = _training(steps, stepped["start"].to_numpy())
    for name, training in set(zip(stepped["name"].to_list(), of.tolist(), strict=True)):
        kinds[training].add(tuple(known.get(f"optimizer/{name}/{fact}") for fact in FACTS))
    judged = flow.window.opened + flow.window.ends[0]
    (mine,) = _training(steps, np.array([judged]))
    return np.array([each == kinds[mine] for each in kinds])
