"""Lookups in the intervals of one thread, for several readers."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

NO_INTERVAL = -1


def outermost(start: Integers, end: Integers) -> Flags:
    """Return which intervals, sorted by start and the longer first, do not begin inside an earlier one."""
    if not start.size:
        return np.zeros(0, dtype=np.bool_)
    reached = np.maximum.accumulate(end)
    return np.concatenate([[True], start[1:] >= reached[:-1]])


def holder(start: Integers, end: Integers, moments: Integers) -> Integers:
    """Return which of some disjoint, sorted intervals contains each moment, NO_INTERVAL if none does."""
    place = np.searchsorted(start, moments, side="right") - 1
    if not start.size:
        return np.full(moments.size, NO_INTERVAL, dtype=np.int64)
    inside = (place >= 0) & (moments < end[np.maximum(place, 0)])
    return np.where(inside, place, NO_INTERVAL)


def innermost(start: Integers, end: Integers, moments: Integers) -> Integers:
    """Return the innermost of some nested intervals, sorted by start and the longer first, at each moment."""
    order = np.argsort(moments, kind="stable")
    found = np.full(moments.size, NO_INTERVAL, dtype=np.int64)
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
