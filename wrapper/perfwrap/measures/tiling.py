"""Cuts a stretch of time into pieces, each owned by the innermost span that covers it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfwrap.measures.loop_events import Integers

NOBODY = -1
FOREVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Tiling:
    """Pieces [cuts[i], cuts[i + 1]) without gap or overlap; ``owner`` is the place of a span, or NOBODY."""

    cuts: Integers
    owner: Integers


def tile(start: Integers, end: Integers, begin: int, finish: int, more_cuts: Integers) -> Tiling:
    """Tile [begin, finish) by spans, which are sorted by start, the longer first.

    The innermost span at a moment is the one that started last among those that cover it, so spans that
    overlap because of clock jitter are cut, never counted twice. ``more_cuts`` are further moments at which
    pieces end.
    """
    start, end = np.clip(start, begin, finish), np.clip(end, begin, finish)
    real = np.flatnonzero(end > start)
    start, end = start[real], end[real]
    inside = more_cuts[(more_cuts > begin) & (more_cuts < finish)]
    cuts = np.unique(np.concatenate([[begin, finish], start, end, inside]).astype(np.int64))
    if finish <= begin:
        return Tiling(np.array([begin], dtype=np.int64), np.zeros(0, dtype=np.int64))
    owner = _innermost(start.tolist(), end.tolist(), cuts[:-1].tolist())
    return Tiling(cuts, np.append(real, NOBODY)[owner])


def _innermost(start: list[int], end: list[int], moments: list[int]) -> Integers:
    """Return the innermost span at each of the moments, which are sorted.

    A plain loop over lists: 1.1 s for 2 million spans, where columns sorted by depth took 7 s.
    """
    owner, open_spans, place = [], [NOBODY], 0
    starts, ends = [*start, FOREVER], [*end, FOREVER]
    for moment in moments:
        while starts[place] <= moment:
            open_spans.append(place)
            place += 1
        # NOBODY reads the last end, which never comes.
        while ends[open_spans[-1]] <= moment:
            open_spans.pop()
        owner.append(open_spans[-1])
    return np.array(owner, dtype=np.int64)
