"""When torch.profiler or a dataflow window recorded steps of a trainer: these steps are slower than usual."""

from __future__ import annotations

import numpy as np
import polars as pl

from perfwrap.measures.account.loop_events import Flags, Integers
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.coverage import DATAFLOW, WINDOW
from perfwrap.timeline.model import Timeline

PART_OF_STEP = "a part of step"
"""How the recorder's note begins if the window ended within a step, which took too long."""


def find_windows(timeline: Timeline, trainer: Trainer) -> tuple[Integers, Integers]:
    """Return starts and ends of the windows of a trainer's process, each from its start to its export."""
    rows = timeline.coverage.filter(
        pl.col("what").is_in((WINDOW, DATAFLOW)),
        pl.col("track") == trainer.process,
        pl.col("end") > pl.col("start"),
    ).sort("start")
    return rows["start"].to_numpy(), rows["end"].to_numpy()


def window_notes(timeline: Timeline, trainer: Trainer) -> tuple[str, ...]:
    """Return which steps of a trainer were captured, or why none were, as sentences without a period."""
    rows = timeline.coverage.filter(pl.col("what") == WINDOW, pl.col("track") == trainer.process)
    return tuple(rows["note"].drop_nulls().to_list())


def ends_within_step(timeline: Timeline, trainer: Trainer) -> bool:
    """Return whether only a part of a step was captured."""
    return any(note.startswith(PART_OF_STEP) for note in window_notes(timeline, trainer))


def touched(windows: tuple[Integers, Integers], starts: Integers, ends: Integers) -> Flags:
    """Return which of the intervals overlap a window."""
    found = np.zeros(starts.size, dtype=np.bool_)
    for begin, finish in zip(*windows, strict=True):
        found |= (starts < finish) & (ends > begin)
    return found
