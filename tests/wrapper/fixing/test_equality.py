"""When two runs count as the same training."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace
from perfwrap.fixing import equality
from perfwrap.fixing.equality import StepValues


def values(count: int = 10, factor: float = 1.0, checksum: str = "00000001") -> list[StepValues]:
    return [
        StepValues(
            factor * (2.0 - 0.1 * step),
            f"{checksum}{step}",
            factor * (5.0 + 0.01 * step),
            tuple(factor * 0.3 * (-1) ** place for place in range(64)),
        )
        for step in range(count)
    ]


def test_the_same_bits_are_identical_and_a_checksum_alone_can_differ() -> None:
    assert equality.is_identical(values(), values())
    assert not equality.is_identical(values(), values(checksum="00000002"))
    assert not equality.is_identical(values(), values(factor=1 + 1e-12))
    assert not equality.is_identical(values(4), values(4)), "too few steps"


def test_losses_that_are_nan_in_both_are_the_same() -> None:
    broken = [StepValues(math.nan, "1", 1.0, (1.0, math.nan))] * 6
    assert equality.is_identical(broken, broken)
    assert equality.deviations(broken, broken) == [(0.0, 0.0, 0.0)] * 6
    assert equality.deviations(broken, values())[0][0] == math.inf
    assert equality.deviations(values(), broken)[0] == (math.inf,) * 3


def test_a_bound_that_is_not_a_number_excuses_nothing() -> None:
    broken = [StepValues(math.nan, "1", math.nan, (math.nan,) * 64)] * 10
    assert equality.compare(values(), values(factor=1.1), broken)[0] is False


@pytest.mark.parametrize(("apart", "within"), [(1e-7, True), (3e-6, True), (1e-3, False)])
def test_rounding_is_what_another_number_of_threads_changes(apart: float, within: bool) -> None:
    bound = values(factor=1 + 1e-6, checksum="00000003")
    found, largest = equality.compare(values(), values(factor=1 + apart), bound)
    assert found is within
    assert largest == pytest.approx(apart, rel=0.01)


def test_rounding_may_begin_to_grow_a_few_steps_earlier_but_not_in_the_first_step() -> None:
    bound = values(5) + values(10, factor=1.5)[5:]
    for first, within in ((9, True), (5, True), (2, True), (0, False)):
        edited = values(first) + values(10, factor=1.2)[first:]
        assert equality.compare(values(), edited, bound)[0] is within, first
    much_later = values(8) + values(10, factor=1.5)[8:]
    assert equality.compare(values(), values(2) + values(10, factor=1.2)[2:], much_later)[0] is False


def test_a_few_wrong_elements_excuse_neither_another_loss_nor_a_change_of_all_elements() -> None:
    few = [replace(one, products=(*one.products[:-2], 2.0, 3.0)) for one in values()]
    other_few = [replace(one, products=(3.0, 2.0, *one.products[2:])) for one in values()]
    other_loss = [replace(one, loss=1.01 * (one.loss or 0.0)) for one in values()]
    all_elements = [replace(one, products=tuple(1.01 * each for each in one.products)) for one in values()]
    assert equality.compare(values(), other_few, few)[0] is True
    assert equality.compare(values(), other_loss, few)[0] is False
    assert equality.compare(values(), all_elements, few)[0] is False


def test_too_few_steps_are_no_answer() -> None:
    assert equality.compare(values(), values(3), values())[0] is None
    assert equality.read(None) == []
