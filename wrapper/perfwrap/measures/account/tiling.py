"""Splits a time range into pieces, each owned by the innermost span that covers it."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfwrap.measures.account.intervals import distinct
from perfwrap.measures.account.loop_events import Integers

NO_OWNER = -1
FOREVER = np.iinfo(np.int64).max
BLOCK = 1 << 18
"""Moments that are converted to Python integers at once: these take four times the memory."""


class Tiling(Struct, frozen=True):
    """Pieces [cuts[i], cuts[i + 1]) without gap or overlap; ``owner`` is the index of a span, or NO_OWNER."""

    cuts: Integers
    owner: Integers


def tile(start: Integers, end: Integers, begin: int, finish: int, more_cuts: Integers) -> Tiling:
    """Tile [begin, finish) by spans, which are sorted by start, the longer first.

    The innermost span at a moment is the one that started last among those that cover it, so spans that overlap because
    of clock jitter are cut and never counted twice. ``more_cuts`` are additional moments at which pieces end.
    """
    start, end = np.clip(start, begin, finish), np.clip(end, begin, finish)
    real = np.flatnonzero(end > start)
    start, end = start[real], end[real]
    inside = more_cuts[(more_cuts > begin) & (more_cuts < finish)]
    cuts = distinct(np.concatenate([[begin, finish], start, end, inside]).astype(np.int64))
    owner = _innermost(start, end, cuts[:-1])
    return Tiling(cuts, np.append(real, NO_OWNER)[owner])


def _innermost(start: Integers, end: Integers, moments: Integers) -> Integers:
    """Return the innermost span at each of the moments, which are sorted.

    A plain loop over lists: 1.1 s for 2 million spans; columns sorted by depth took 7 s.
    """
    owner = np.full(moments.size, NO_OWNER, dtype=np.int64)
    open_spans, open_ends, place = [NO_OWNER], [FOREVER], 0
    for block in range(0, moments.size, BLOCK):
        asked = moments[block : block + BLOCK]
        known = int(np.searchsorted(start, asked[-1], side="right"))
        starts, ends = [*start[place:known].tolist(), FOREVER], end[place:known].tolist()
        first, found = place, []
        for moment in asked.tolist():
            while starts[place - first] <= moment:
                open_spans.append(place)
                open_ends.append(ends[place - first])
                place += 1
            while open_ends[-1] <= moment:
                open_spans.pop()
                open_ends.pop()
            found.append(open_spans[-1])
        owner[block : block + BLOCK] = found
    return owner
