"""Intervals against sets of moments: slow, and right at sight."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from perfwrap.measures.account.intervals import (
    NOTHING,
    Intervals,
    contain,
    covered,
    distinct,
    length,
    overlap,
    union,
    without,
)

LATEST = 40
STRETCHES = st.lists(st.tuples(st.integers(0, LATEST), st.integers(0, 9)), max_size=12)


def columns(stretches: list[tuple[int, int]]) -> Intervals:
    return (
        np.array([start for start, _ in stretches], dtype=np.int64),
        np.array([start + took for start, took in stretches], dtype=np.int64),
    )


def moments(stretches: list[tuple[int, int]]) -> set[int]:
    return {moment for start, took in stretches for moment in range(start, start + took)}


def members(intervals: Intervals) -> set[int]:
    return {moment for start, end in zip(*intervals, strict=True) for moment in range(start, end)}


def is_separate(intervals: Intervals) -> bool:
    start, end = intervals
    return bool((start < end).all() and (end[:-1] < start[1:]).all())


@given(STRETCHES, STRETCHES)
def test_a_union_covers_the_same_and_is_separate(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    whole = union([columns(first), columns(second)])
    assert members(whole) == moments(first) | moments(second)
    assert is_separate(whole)
    assert length(whole) == len(members(whole))


@given(STRETCHES, STRETCHES)
def test_what_is_without_others_holds_none_of_their_moments(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    left = without(union([columns(first)]), union([columns(second)]))
    assert members(left) == moments(first) - moments(second)
    assert is_separate(left)


@given(STRETCHES, st.lists(st.integers(-2, LATEST + 12), max_size=9))
def test_moments_are_found_inside(stretches: list[tuple[int, int]], asked: list[int]) -> None:
    inside = contain(union([columns(stretches)]), np.array(asked, dtype=np.int64))
    assert inside.tolist() == [moment in moments(stretches) for moment in asked]


@given(STRETCHES, STRETCHES)
def test_what_is_covered_of_a_stretch_is_counted(
    stretches: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    found = covered(union([columns(stretches)]), *columns(asked))
    known = moments(stretches)
    assert found.tolist() == [len(known & set(range(start, start + took))) for start, took in asked]


@given(STRETCHES)
def test_an_overlap_is_where_two_run_at_once(stretches: list[tuple[int, int]]) -> None:
    counted = [
        sum(start <= moment < start + took for start, took in stretches) for moment in range(LATEST + 9)
    ]
    assert overlap(*columns(stretches)) == sum(count >= 2 for count in counted)


def test_nothing_is_nowhere() -> None:
    assert length(NOTHING) == 0
    assert length(union([])) == 0
    assert overlap(*NOTHING) == 0


@given(st.lists(st.integers(-LATEST, LATEST)))
def test_distinct_moments_are_sorted_and_each_is_there_once(some: list[int]) -> None:
    assert distinct(np.array(some, dtype=np.int64)).tolist() == sorted(set(some))
