from __future__ import annotations

import pytest
from perfwrap.measures.dataflow.parallel_layers import find_parallel_layers
from perfwrap.measures.dataflow.waste import Waste

from tests.wrapper.drawn_windows import Draw, Step, Tensor, draw_flow

HEAD, LOOP = "net.py:7 forward", "net.py:20 forward"


def find(body: Draw) -> list[Waste]:
    return find_parallel_layers(draw_flow(body))


def layers(step: Step, heads: int = 8, layers: int = 3) -> None:
    """Draw layers of heads: each is a product with weights of its own, and the softmax of that."""
    x, products = step.batch(8, 8), []
    for layer in range(layers):
        made = []
        for head in range(heads):
            weight = step.old(f"weight {layer} {head}")
            products.append(step.call("mm", x, weight, line=(HEAD, LOOP), ns=50_000))
            made.append(step.call("softmax", products[-1], line=("net.py:8 forward", LOOP), ns=50_000))
        x = step.call("cat", *made, line=LOOP)
    learn(step, *products)


def learn(step: Step, *results: Tensor) -> None:
    step.backward()
    for number, result in enumerate(results):
        step.optimize(step.old(f"optimized {number}"), step.gradient(result, result))


def test_heads_that_read_one_tensor_are_found_in_each_layer() -> None:
    (waste,) = find(layers)
    assert waste.is_parallel
    assert waste.count == 8
    assert dict(waste.names) == {"mm": 24, "softmax": 24}
    assert [line.line for line in waste.callers] == [20]
    # Each product has an operation in the backward pass.
    assert len(waste.operations) == 24 + 24 + 24


@pytest.mark.parametrize(("heads", "count"), [(3, 12), (1, 40)])
def test_layers_one_after_the_other_are_not_parallel(heads: int, count: int) -> None:
    assert find(lambda step: layers(step, heads=heads, layers=count)) == []


def test_without_a_gradient_they_are_not_part_of_the_training() -> None:
    def body(step: Step) -> None:
        x = step.batch(8, 8)
        for _ in range(3):
            for head in range(8):
                step.call("mm", x, step.old(f"weight {head}"), line=HEAD)
        step.train(step.call("sum", x, line=9))

    assert find(body) == []


def calls(
    step: Step, same: bool = False, sizes: tuple[int, ...] = (8,), ns: int = 50_000, into: bool = False
) -> None:
    x, made = step.batch(8, 8), []
    for number in range(16):
        weight = step.old("weight 0" if same else f"weight {number}")
        shape = (sizes[number % len(sizes)], 8)
        written = step.old(f"buffer {number}") if into else None
        made.append(step.call("mm", x, weight, line=HEAD, shape=shape, ns=ns, into=written))
    learn(step, *made)


def test_modules_on_one_tensor_are_found() -> None:
    (waste,) = find(calls)
    assert waste.count == 16
    assert waste.share == pytest.approx(
        0.9 * (16 * 50_000 + 16 * 100_000) / (16 * 50_000 + 32 * 100_000) * 15 / 16
    )


def test_the_same_weights_are_the_same_work_and_no_modules_of_their_own() -> None:
    assert find(lambda step: calls(step, same=True)) == []


def test_results_of_different_sizes_cannot_be_stacked() -> None:
    assert find(lambda step: calls(step, sizes=(1, 2, 3, 4, 5, 6))) == []
    assert len(find(lambda step: calls(step, sizes=(1, 2)))) == 1


def test_large_operations_gain_little() -> None:
    assert find(lambda step: calls(step, ns=500_000)) == []


def test_what_is_written_in_place_is_no_module() -> None:
    assert find(lambda step: calls(step, into=True)) == []


@pytest.mark.parametrize("casts", [False, True])
def test_weights_on_one_micro_batch_after_the_other_are_no_modules_of_their_own(casts: bool) -> None:
    def body(step: Step) -> None:
        weight, made = step.old("weight"), []
        if casts:
            weight = step.call("_to_copy", weight, line=5)
        for _ in range(16):
            made.append(step.call("mm", step.batch(8, 8), weight, line=HEAD, ns=50_000))
        learn(step, *made)

    assert find(body) == []


def test_casts_of_weights_are_weights() -> None:
    def body(step: Step) -> None:
        x, made = step.batch(8, 8), []
        for number in range(16):
            weight = step.call("_to_copy", step.old(f"weight {number}"), line=HEAD, ns=50_000)
            made.append(step.call("mm", x, weight, line=HEAD, ns=50_000))
        learn(step, *made)

    (waste,) = find(body)
    assert dict(waste.names) == {"_to_copy": 16, "mm": 16}
