"""The trainings of one thread that follow each other, each with optimizers of its own (folds, cells of a notebook)."""

from __future__ import annotations

import numpy as np

from perfwrap.measures.account.intervals import NOTHING, Intervals
from perfwrap.measures.account.loop_events import LOADER, LoopEvents
from perfwrap.measures.steps.phases import Phases

LOADER_START = LOADER.index("loader_start")
NEVER = -1


def gaps_between_trainings(events: LoopEvents, phases: Phases) -> Intervals:
    """Return the times between the last step of one training and the first event of the next.

    A training ends when none of its optimizers steps again. A validation after it ends before the gap begins.
    """
    optimizer = events.optimizer
    if len(optimizer) < 2:
        return NOTHING
    last = {key: int(end) for key, end in zip(optimizer.key.tolist(), optimizer.end.tolist(), strict=True)}
    first: dict[int, int] = {}
    for key, start in zip(optimizer.key.tolist(), optimizer.start.tolist(), strict=True):
        first.setdefault(key, int(start))
    gaps = []
    reached = NEVER
    for key in sorted(first, key=lambda each: first[each]):
        if NEVER < reached <= first[key]:
            gaps.append(_gap(events, phases, reached, first[key]))
        reached = max(reached, last[key])
    begin, end = (np.array(column, dtype=np.int64) for column in zip(*gaps, strict=True)) if gaps else NOTHING
    return begin[end > begin], end[end > begin]


def _gap(events: LoopEvents, phases: Phases, ended: int, first_step: int) -> tuple[int, int]:
    """Return the gap between the last step of a training and the beginning of the next one's first step."""
    between = (phases.start >= ended) & (phases.end <= first_step)
    begin = int(phases.end[between].max(initial=ended))
    backward = events.backward.start[(events.backward.start >= begin) & (events.backward.start < first_step)]
    until = int(backward[0]) if backward.size else first_step
    starts = events.loader.start[events.loader_kind == LOADER_START]
    for moments, pick in ((starts, -1), (events.loader.start, -1), (events.forward.start, 0)):
        inside = moments[(moments >= begin) & (moments < until)]
        if inside.size:
            return begin, int(inside[pick])
    return begin, until
