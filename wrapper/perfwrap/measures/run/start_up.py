"""The time before training ran steadily."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.intervals import contain, union
from perfwrap.measures.account.loop_events import thread_spans
from perfwrap.measures.account.tiling import NO_OWNER, tile
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.run.imports import timed_samples
from perfwrap.measures.steps.steps import Steps, find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.coverage import RECORDER
from perfwrap.timeline.lookup import facts_of
from perfwrap.timeline.model import Timeline


class StartUp(Struct, frozen=True):
    """The time from the start of the process to the end of the first step, and the warm-up after it.

    The first step counts only as far as it took longer than a usual one: training itself is no start. ``parts`` tiles
    ``total_ns`` exactly: ``interpreter`` (before the recorder started), ``import torch``, ``imports`` (of other
    packages, by py-spy's samples), ``compilation``, ``loader start``, ``first batch``, ``first forward``, ``first
    backward``, ``first optimizer``, ``validation``, ``load``, ``sync``, ``rest`` (the program's other Python: dataset,
    model, and without samples its imports).
    """

    total_ns: int
    parts: dict[str, int]
    warm_up_steps: int
    warm_up_excess_ns: int
    """Extra time of the warm-up steps over the same number of median steps, including the first step."""
    run_share: float
    """``total_ns`` over the lifetime of the process."""


NAMES = {
    "import": "import torch",
    "compile": "compilation",
    "loader_start": "loader start",
    "data": "first batch",
    "data_end": "first batch",
    "forward": "first forward",
    "backward": "first backward",
    "optimizer": "first optimizer",
    "scaler_step": "first optimizer",
    "zero_grad": "first optimizer",
    "load": "load",
    "sync": "sync",
}
"""The name of each operation's time before the end of the first step."""

PARTS = (
    "interpreter",
    "import torch",
    "imports",
    "load",
    "compilation",
    "loader start",
    "first batch",
    "first forward",
    "first backward",
    "first optimizer",
    "sync",
    "validation",
    "rest",
)


def find_start_up(evidence: Evidence, trainer: Trainer) -> StartUp | None:
    """Return the time before the end of the first step; None without steps."""
    timeline = evidence.timeline
    steps = evidence.get(find_steps, trainer)
    if not steps.count:
        return None
    seen, ended = life_of(timeline, trainer)
    begun = min(started(timeline, trainer) or seen, seen)
    median = steps.median_ns or 0.0
    durations = steps.table["duration"].to_numpy()
    usual = int(np.median(durations[1:])) if durations.size > 1 else 0
    first_end = int(steps.table["end"][0]) - min(int(durations[0]), usual)
    warm_up: int = (
        steps.table.filter(pl.col("index") < steps.warm_up_steps, ~pl.col("windowed"))
        .select(pl.col("duration").sum())
        .item()
    )
    return StartUp(
        total_ns=first_end - begun,
        parts=_parts(timeline, trainer, steps, begun, seen, first_end),
        warm_up_steps=steps.warm_up_steps,
        warm_up_excess_ns=max(0, int(warm_up - steps.warm_up_steps * median)),
        run_share=(first_end - begun) / max(1, max(ended, steps.loop_end) - begun),
    )


def life_of(timeline: Timeline, trainer: Trainer) -> tuple[int, int]:
    """Return the first and the last moment of the recording of the trainer's process."""
    rows = timeline.coverage.filter(pl.col("what") == RECORDER, pl.col("track") == trainer.process)
    spans = thread_spans(timeline, trainer)
    first = min([*rows["start"].to_list(), int(spans["start"][0])])
    return first, max([*rows["end"].to_list(), int(spans["start"][-1])])


def started(timeline: Timeline, trainer: Trainer) -> int | None:
    """Return when the interpreter started, None without a start record."""
    moment = facts_of(timeline, trainer.process).get("started", "")
    return int(moment) if moment.isdecimal() else None


def _parts(
    timeline: Timeline, trainer: Trainer, steps: Steps, begun: int, seen: int, end: int
) -> dict[str, int]:
    """Return the parts of [begun, end), which add up to it exactly."""
    spans = thread_spans(timeline, trainer).filter(pl.col("start") < end)
    start = spans["start"].to_numpy()
    phases = steps.phases
    samples = timed_samples(timeline, trainer.thread).filter(pl.col("package").is_not_null())
    imports = union([(samples["start"].to_numpy(), samples["end"].clip(upper_bound=end).to_numpy())])
    more = np.concatenate([[seen], phases.start, phases.end, *imports])
    tiling = tile(start, start + spans["duration"].to_numpy(), begun, end, more)
    names = [NAMES.get(operation, "rest") for operation in spans["operation"].to_list()] + ["rest"]
    owner = np.array(names, dtype=object)[tiling.owner]
    moments = tiling.cuts[:-1]
    unowned = tiling.owner == NO_OWNER
    owner[unowned & contain(imports, moments)] = "imports"
    owner[unowned & (moments < seen)] = "interpreter"
    owner[phases.contain(moments) & (owner != "compilation")] = "validation"
    lengths = np.diff(tiling.cuts)
    return {part: int(lengths[owner == part].sum()) for part in PARTS}
