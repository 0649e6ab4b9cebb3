"""Questions to intervals of one thread that several readers ask."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

NOBODY = -1


def outermost(start: Integers, end: Integers) -> Flags:
    """Say which intervals, sorted by start and the longer first, do not begin inside an earlier one."""
    if not start.size:
        return np.zeros(0, dtype=np.bool_)
    reached = np.maximum.accumulate(end)
    return np.concatenate([[True], start[1:] >= reached[:-1]])


def holder(start: Integers, end: Integers, moments: Integers) -> Integers:
    """Return which of some disjoint, sorted intervals holds each moment, NOBODY for none."""
    place = np.searchsorted(start, moments, side="right") - 1
    if not start.size:
        return np.full(moments.size, NOBODY, dtype=np.int64)
    inside = (place >= 0) & (moments < end[np.maximum(place, 0)])
    return np.where(inside, place, NOBODY)


def innermost(start: Integers, end: Integers, moments: Integers) -> Integers:
    """Return which of some nested intervals, sorted by start and the longer first, holds each moment closest."""
    order = np.argsort(moments, kind="stable")
    found = np.full(moments.size, NOBODY, dtype=np.int64)
    starts, ends = [*start.tolist(), np.iinfo(np.int64).max], end.tolist()
    stack: list[int] = []
    place = 0
    for at in order.tolist():
        moment = int(moments[at])
        while starts[place] <= moment:
            stack.append(place)
            place += 1
        while stack and ends[stack[-1]] <= moment:
            stack.pop()
        if stack:
            found[at] = stack[-1]
    return found
