"""Sorts are rows of 32 entries; the geometry of what is read of them says which entries."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from perfwrap.measures.dataflow.full_sorts import SAVED, SAVED_OF_FEW, find_full_sorts

from tests.wrapper.drawn_windows import Step, Tensor, draw_flow

Use = Callable[[Step, Tensor, Tensor], object]


def first(step: Step, sorted_: Tensor) -> object:
    return step.call("exp", step.view(sorted_, 4, 5, name="slice", stride=(32, 1)), shape=(4, 5))


def last(step: Step, sorted_: Tensor) -> object:
    return step.call("exp", step.view(sorted_, 4, 5, name="slice", offset=27, stride=(32, 1)), shape=(4, 5))


def single(step: Step, sorted_: Tensor) -> object:
    return step.call("exp", step.view(sorted_, 4, name="select", stride=(32,)), shape=(4,))


def strided(step: Step, sorted_: Tensor) -> object:
    return step.call("exp", step.view(sorted_, 4, 16, name="slice", stride=(32, 2)), shape=(4, 16))


def other_rows(step: Step, sorted_: Tensor) -> object:
    return step.call("exp", step.view(sorted_, 1, 32, name="slice", stride=(32, 1)), shape=(1, 32))


def wrapped(step: Step, sorted_: Tensor) -> object:
    return step.call(
        "exp", step.view(sorted_, 4, 5, name="as_strided", offset=30, stride=(32, 1)), shape=(4, 5)
    )


def find(use: Use, *shape: int, **sort: object) -> list[float | None]:
    def body(step: Step) -> None:
        values, places = step.sort(*(shape or (4, 32)), **sort)  # type: ignore[arg-type]
        used = use(step, values, places)
        step.train(used if isinstance(used, Tensor) else step.batch())

    return [waste.used for waste in find_full_sorts(draw_flow(body), ())]


@pytest.mark.parametrize(("read", "part"), [(first, 5 / 32), (last, 5 / 32), (single, 1 / 32)])
def test_entries_from_one_end_are_a_part(read: Callable[[Step, Tensor], object], part: float) -> None:
    assert find(lambda step, values, places: read(step, places)) == [part]


@pytest.mark.parametrize("read", [strided, other_rows, wrapped])
def test_others_are_not(read: Callable[[Step, Tensor], object]) -> None:
    assert find(lambda step, values, places: read(step, places)) == []


def test_both_results_count() -> None:
    assert find(lambda step, values, places: (first(step, values), single(step, places))) == [5 / 32]
    assert find(lambda step, values, places: (first(step, values), last(step, places))) == []
    assert find(lambda step, values, places: (first(step, values), step.call("exp", places))) == []


def test_the_dimension_is_that_of_the_sort() -> None:
    def rows(step: Step, values: Tensor, places: Tensor) -> object:
        return step.call("exp", step.view(places, 3, 4, name="slice", stride=(4, 1)), shape=(3, 4))

    assert find(rows, 32, 4, dim=0) == [3 / 32]
    assert find(rows, 32, 4, dim=-1) == []


def test_what_is_kept_written_or_taken_by_the_program_is_unknown() -> None:
    def taken(step: Step, values: Tensor, places: Tensor) -> object:
        step.numpy(step.view(places, 4, 5, name="slice", stride=(32, 1)))
        return first(step, values)

    def written(step: Step, values: Tensor, places: Tensor) -> object:
        step.call("add_", into=places)
        return first(step, places)

    assert find(taken) == [5 / 32]
    assert find(written) == []


def test_a_stable_sort_is_left_out() -> None:
    assert find(lambda step, values, places: first(step, places), name="sort.stable") == []


def test_its_backward_may_read_all_places() -> None:
    def body(step: Step) -> None:
        values, places = step.sort(4, 32)
        used = step.call("exp", step.view(values, 4, 5, name="slice", stride=(32, 1)), shape=(4, 5))
        step.backward()
        step.optimize(step.old("weight"), step.gradient(values, places, used, name="scatter"))

    (waste,) = find_full_sorts(draw_flow(body), ())
    assert waste.share == pytest.approx(SAVED * 2 / 5)
    assert [line.line for line in waste.lines] == [20]


def test_a_smaller_part_saves_more() -> None:
    def body(step: Step) -> None:
        step.train(single(step, step.sort(4, 32)[1]))  # type: ignore[arg-type]

    (waste,) = find_full_sorts(draw_flow(body), ())
    assert waste.share == pytest.approx(SAVED_OF_FEW / 5)


def test_a_sort_that_another_finding_has_is_not_found() -> None:
    def body(step: Step) -> None:
        step.train(first(step, step.sort(4, 32)[1]))  # type: ignore[arg-type]

    flow = draw_flow(body)
    assert find_full_sorts(flow, set(flow.step)) == []
