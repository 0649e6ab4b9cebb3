"""When two runs count as the same training."""

from __future__ import annotations

import math

import pytest
from perfwrap.fixing import equality
from perfwrap.fixing.equality import StepValues


def values(count: int = 10, factor: float = 1.0, checksum: str = "00000001") -> list[StepValues]:
    return [
        StepValues(
            factor * (2.0 - 0.1 * step), f"{checksum}{step}", factor * (5.0 + 0.01 * step), factor * 0.3
        )
        for step in range(count)
    ]


def test_the_same_bits_are_identical_and_a_checksum_alone_can_differ() -> None:
    assert equality.is_identical(values(), values())
    assert not equality.is_identical(values(), values(checksum="00000002"))
    assert not equality.is_identical(values(), values(factor=1 + 1e-12))
    assert not equality.is_identical(values(4), values(4)), "too few steps"


def test_losses_that_are_nan_in_both_are_the_same() -> None:
    broken = [StepValues(math.nan, "1", 1.0, 1.0)] * 6
    assert equality.is_identical(broken, broken)
    assert equality.deviation(broken[0], values()[0]) == math.inf


@pytest.mark.parametrize(("apart", "within"), [(1e-7, True), (3e-6, True), (1e-3, False)])
def test_rounding_is_what_another_number_of_threads_changes(apart: float, within: bool) -> None:
    bound = values(factor=1 + 1e-6, checksum="00000003")
    found, largest = equality.compare(values(), values(factor=1 + apart), bound)
    assert found is within
    assert largest == pytest.approx(apart, rel=0.01)


def test_a_bound_that_grows_late_does_not_excuse_an_early_deviation() -> None:
    bound = values(5) + values(10, factor=1.5)[5:]
    early = values(1, factor=1.2) + values(10)[1:]
    late = values(9) + values(10, factor=1.2)[9:]
    assert equality.compare(values(), early, bound)[0] is False
    assert equality.compare(values(), late, bound)[0] is True


def test_too_few_steps_are_no_answer() -> None:
    assert equality.compare(values(), values(3), values())[0] is None
    assert equality.read(None) == []
