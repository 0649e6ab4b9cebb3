"""Tiling: every nanosecond has one owner, the innermost span, whatever the spans look like."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from perfwrap.measures.account.tiling import NO_OWNER, tile


def sort(spans: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and ends as a timeline sorts them: by start, the longer first."""
    ordered = sorted(spans, key=lambda span: (span[0], -span[1]))
    return np.array([span[0] for span in ordered], np.int64), np.array(
        [span[1] for span in ordered], np.int64
    )


spans = st.lists(
    st.tuples(st.integers(-20, 120), st.integers(0, 60)).map(lambda pair: (pair[0], pair[0] + pair[1])),
    max_size=40,
)


@given(spans, st.integers(0, 50), st.integers(0, 80), st.lists(st.integers(-10, 150), max_size=8))
def test_pieces_tile_the_stretch_and_the_latest_start_owns(
    found: list[tuple[int, int]], begin: int, length: int, cuts: list[int]
) -> None:
    start, end = sort(found)
    finish = begin + length
    tiling = tile(start, end, begin, finish, np.array(cuts, np.int64))
    assert tiling.cuts[0] == begin
    assert tiling.cuts[-1] == finish
    assert (np.diff(tiling.cuts) > 0).all()
    assert {cut for cut in cuts if begin < cut < finish} <= set(tiling.cuts.tolist())
    for moment, owner in zip(tiling.cuts.tolist(), tiling.owner.tolist(), strict=False):
        covering = [
            place
            for place in range(start.size)
            if max(start[place], begin) <= moment < min(end[place], finish)
        ]
        # Where clipping makes starts equal, any of those that cover the moment will do.
        latest = max((max(start[place], begin) for place in covering), default=None)
        assert owner == NO_OWNER if latest is None else max(start[owner], begin) == latest


def test_a_child_interrupts_its_parent() -> None:
    tiling = tile(*sort([(0, 100), (20, 40), (25, 30)]), 0, 100, np.array([], np.int64))
    assert tiling.cuts.tolist() == [0, 20, 25, 30, 40, 100]
    assert tiling.owner.tolist() == [0, 1, 2, 1, 0]


def test_spans_that_overlap_by_clock_jitter_are_cut_not_counted_twice() -> None:
    tiling = tile(*sort([(0, 52), (50, 100)]), 0, 110, np.array([], np.int64))
    lengths = np.diff(tiling.cuts)
    assert [int(lengths[tiling.owner == owner].sum()) for owner in (0, 1, NO_OWNER)] == [50, 50, 10]


def test_the_time_of_a_tiling_grows_with_the_spans_and_not_with_their_square() -> None:
    def seconds(count: int) -> float:
        start = np.arange(count, dtype=np.int64) * 10
        begin = time.process_time()
        tile(start, start + 7, 0, count * 10, start)
        return time.process_time() - begin

    seconds(1_000)
    small = min(seconds(20_000) for _ in range(3))
    assert seconds(200_000) < 60 * small
