from __future__ import annotations

from typing import Any

import pytest
from perfwrap.measures.dataflow.late_products import find_late_products
from perfwrap.measures.dataflow.waste import Waste

from tests.wrapper.drawn_windows import Draw, Step, Tensor, draw_flow

PICTURE, LARGE = (2, 8, 4, 4), (2, 8, 16, 16)


def find(body: Draw) -> list[Waste]:
    return find_late_products(draw_flow(body), ())


def picked(step: Step, name: str = "index", *others: Tensor) -> Tensor:
    """Return 40 rows of 10."""
    return step.call(name, step.batch(10, 8), step.batch(40), *others, shape=(40, 8), line=20)  # type: ignore[no-any-return]


def linear(step: Step, rows: Tensor, out: int = 4, **more: Any) -> Tensor:
    return step.call(
        "addmm", step.old("bias", out), rows, step.old("weight", 8, out), shape=(40, out), line=21, **more
    )  # type: ignore[no-any-return]


def upsampled(step: Step, name: str = "upsample_bilinear2d") -> Tensor:
    return step.call(name, step.batch(*PICTURE), shape=LARGE, line=20)  # type: ignore[no-any-return]


def convolved(step: Step, picture: Tensor, kernel: int = 1, out: int = 4, size: int = 16) -> Tensor:
    weight = step.old("kernel", out, 8, kernel, kernel)
    return step.call("convolution", picture, weight, shape=(2, out, size, size), line=21)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["index", "index_select"])
def test_a_linear_layer_on_rows_that_are_taken_is_found(name: str) -> None:
    (waste,) = find(lambda step: step.train(linear(step, picked(step, name))))
    # The layer, its gradient with respect to the loss, the optimizer, and the rows: of half the features then.
    assert waste.share == pytest.approx((0.75 * 2 + 0.5) / 4)
    assert [line.line for line in waste.lines] == [21]
    assert waste.other is not None
    assert waste.other.line == 20
    assert waste.used == 0.25


@pytest.mark.parametrize("name", ["upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d"])
def test_a_convolution_of_size_1_on_an_upsampled_picture_is_found(name: str) -> None:
    (waste,) = find(lambda step: step.train(convolved(step, upsampled(step, name))))
    assert waste.used == 1 / 16


def test_a_linear_layer_on_copies_is_found() -> None:
    def body(step: Step) -> None:
        expanded = step.view(step.batch(10, 8), 10, 4, 8, name="expand", stride=(8, 0, 1))
        copied = step.call("clone", expanded, shape=(10, 4, 8), line=20)
        step.train(linear(step, step.view(copied, 40, 8, name="_unsafe_view", stride=(8, 1))))

    (waste,) = find(body)
    assert waste.used == 0.25


def test_layers_at_one_line_are_one_waste() -> None:
    def body(step: Step) -> None:
        results = [linear(step, picked(step)) for _ in range(3)]
        step.train(step.call("add", *results, shape=(40, 4)))

    (waste,) = find(body)
    assert waste.count == 3
    assert len(waste.operations) == 6


def test_a_layer_with_so_many_features_that_nothing_is_saved_is_not_found() -> None:
    assert len(find(lambda step: step.train(linear(step, picked(step), out=16)))) == 1
    assert find(lambda step: step.train(linear(step, picked(step), out=32))) == []


def test_other_convolutions_are_not_found() -> None:
    assert find(lambda step: step.train(convolved(step, upsampled(step), kernel=3))) == []
    assert find(lambda step: step.train(convolved(step, upsampled(step), size=8))) == []


def test_rows_that_anything_else_reads_are_needed() -> None:
    def body(step: Step) -> None:
        rows = picked(step)
        step.call("relu", rows, shape=(40, 8))
        step.train(linear(step, rows))

    def twice(step: Step) -> None:
        rows = picked(step)
        step.train(step.call("add", linear(step, rows), linear(step, rows), shape=(40, 4)))

    assert find(body) == []
    (waste,) = find(twice)
    assert waste.count == 2


def test_the_gradient_of_the_weights_may_read_the_rows() -> None:
    def body(step: Step) -> None:
        rows = picked(step)
        out = linear(step, rows)
        step.backward()
        step.optimize(step.old("weight", 8, 4), step.gradient(out, rows, out))

    assert len(find(body)) == 1


def test_single_elements_weights_and_few_copies_are_not_rows() -> None:
    assert find(lambda step: step.train(linear(step, picked(step, "index", step.batch(40, 8))))) == []
    assert find(lambda step: step.train(linear(step, picked(step, "gather")))) == []
    few = step_with_rows(30)
    assert find(few) == []

    def weights(step: Step) -> None:
        step.train(step.call("mm", step.batch(5, 40), picked(step), shape=(5, 8)))

    assert find(weights) == []


def step_with_rows(count: int) -> Draw:
    """Return a step that takes 40 of that many rows."""

    def body(step: Step) -> None:
        rows = step.call("index", step.batch(count, 8), step.batch(40), shape=(40, 8))
        step.train(linear(step, rows))

    return body
