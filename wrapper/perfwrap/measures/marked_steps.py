"""Steps that the program or its profiler marked itself: ProfilerStep#N, or ranges called ``step N``."""

from __future__ import annotations

import numpy as np
import polars as pl

from perfwrap.measures.loop_events import Events, LoopEvents
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline

TRUNCATED = 0.1
"""A last mark that is shorter than this share of the others' median was cut off by the end of the recording."""

LEAST_SHARE = 0.5
"""Marks tell the steps when they span so much of what ends steps otherwise; a window of three steps in a run of
thousands does not."""


def marked_steps(timeline: Timeline, trainer: Trainer) -> Events:
    """Return the outermost marks on a trainer's thread; ``key`` and ``value`` say nothing."""
    marks = timeline.spans.filter(pl.col("track") == trainer.thread, pl.col("operation") == "step")
    start = marks["start"].to_numpy()
    end = start + marks["duration"].to_numpy()
    if not start.size:
        return Events(start, end, start, start)
    outer = np.append(True, start[1:] >= np.maximum.accumulate(end)[:-1])
    length = (end - start)[outer]
    if length.size > 1 and length[-1] < TRUNCATED * np.median(length[:-1]):
        outer[np.flatnonzero(outer)[-1]] = False
    nothing = np.zeros(int(outer.sum()), dtype=np.int64)
    return Events(start[outer], end[outer], nothing, nothing)


def mark_name(timeline: Timeline, trainer: Trainer) -> str:
    """Return what the marks are called, their numbers left out."""
    marks = timeline.spans.filter(pl.col("track") == trainer.thread, pl.col("operation") == "step")
    return marks["name"][0].rstrip("0123456789").rstrip(" #_:.-") if marks.height else ""


def span_the_loop(marks: Events, events: LoopEvents) -> bool:
    """Say whether marks tell the steps of the whole loop."""
    if not len(marks):
        return False
    for anchor in (events.optimizer, events.backward, events.forward):
        if len(anchor):
            inside = (anchor.end > marks.start[0]) & (anchor.start < marks.end[-1])
            return bool(np.count_nonzero(inside) >= LEAST_SHARE * len(anchor))
    return True
