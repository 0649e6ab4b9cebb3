"""Steps that the program or its profiler marked: ProfilerStep#N, or ranges named ``step N``."""

from __future__ import annotations

import numpy as np
import polars as pl

from perfwrap.measures.account.loop_events import Events, LoopEvents
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline

TRUNCATED_SHARE = 0.1
"""A last mark shorter than this share of the others' median was truncated by the end of the recording."""

MIN_SPANNED_SHARE = 0.5
"""Share of the other step ends that marks must span to define the steps; a window of three steps in a run of thousands
does not."""


def marked_steps(timeline: Timeline, trainer: Trainer) -> Events:
    """Return the outermost marks on a trainer's thread; ``key`` and ``value`` are unused."""
    marks = timeline.spans.filter(pl.col("track") == trainer.thread, pl.col("operation") == "step")
    start = marks["start"].to_numpy()
    end = start + marks["duration"].to_numpy()
    if not start.size:
        return Events(start, end, start, start)
    outer = np.append(True, start[1:] >= np.maximum.accumulate(end)[:-1])
    length = (end - start)[outer]
    if length.size > 1 and length[-1] < TRUNCATED_SHARE * np.median(length[:-1]):
        outer[np.flatnonzero(outer)[-1]] = False
    nothing = np.zeros(int(outer.sum()), dtype=np.int64)
    return Events(start[outer], end[outer], nothing, nothing)


def mark_name(timeline: Timeline, trainer: Trainer) -> str:
    """Return the name of the marks without their numbers."""
    marks = timeline.spans.filter(pl.col("track") == trainer.thread, pl.col("operation") == "step")
    return marks["name"][0].rstrip("0123456789").rstrip(" #_:.-") if marks.height else ""


def span_the_loop(marks: Events, events: LoopEvents) -> bool:
    """Return whether the marks define the steps of the whole loop."""
    if not len(marks):
        return False
    for anchor in (events.optimizer, events.backward, events.forward):
        if len(anchor):
            inside = (anchor.end > marks.start[0]) & (anchor.start < marks.end[-1])
            return bool(np.count_nonzero(inside) >= MIN_SPANNED_SHARE * len(anchor))
    return True
