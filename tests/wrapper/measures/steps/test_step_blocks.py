from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfwrap.measures.steps.step_blocks import MAX_BLOCKS, find_step_blocks


def steps(durations: list[int], steady: list[bool] | None = None) -> Any:
    columns = {"duration": durations, "steady": steady or [True] * len(durations)}
    return SimpleNamespace(table=pl.DataFrame(columns, schema={"duration": pl.Int64, "steady": pl.Boolean}))


@given(st.lists(st.integers(1, 10**9), max_size=3 * MAX_BLOCKS))
def test_stretches_hold_equally_many_steps_in_order(durations: list[int]) -> None:
    found = find_step_blocks(steps(durations))
    count = len(found.mean_ns)
    assert count <= MAX_BLOCKS
    assert found.steps.bit_count() == 1  # a power of two
    assert len(durations) - count * found.steps < found.steps
    assert sum(found.mean_ns) * found.steps == pytest.approx(sum(durations[: count * found.steps]))


def test_a_short_run_is_described_step_by_step() -> None:
    found = find_step_blocks(steps([3, 1, 2]))
    assert (found.steps, found.mean_ns) == (1, (3, 1, 2))


def test_only_steady_steps_count() -> None:
    assert find_step_blocks(steps([900, 1, 800, 2], [False, True, False, True])).mean_ns == (1, 2)


def test_without_steps_there_is_nothing() -> None:
    assert find_step_blocks(steps([])).mean_ns == ()
