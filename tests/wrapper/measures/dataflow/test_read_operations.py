from __future__ import annotations

import pytest
from perfwrap.measures.dataflow.live_operations import find_dead
from perfwrap.measures.dataflow.read_operations import find_read
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.timeline.operation_window import OPTIMIZER

from tests.wrapper.drawn_windows import Draw, Step, Tensor, draw_flow


def find(body: Draw, has_loader: bool = True) -> list[Waste]:
    flow = draw_flow(body)
    dead = find_dead(flow)
    assert dead is not None
    return find_read(flow, dead, frozenset(), has_loader)


def train(step: Step, x: Tensor) -> None:
    loss = step.call("mse_loss", step.call("mm", x, step.old("weight"), line=21), line=22)
    step.train(loss, step.old("weight"))
    step.item(loss, line=23)


def score(step: Step, x: Tensor) -> Tensor:
    made = step.call(
        "mm", x, step.old("weight"), line=("net.py:5 forward", "monitor.py:8 score", "train.py:24 main")
    )
    return step.call("svd", made, line=("monitor.py:9 score", "train.py:24 main"))  # type: ignore[no-any-return]


@pytest.mark.parametrize("read", ["item", "numpy"])
def test_a_metric_of_every_step_is_found_at_the_line_that_asks_for_it(read: str) -> None:
    def body(step: Step) -> None:
        train(step, step.batch())
        getattr(step, read)(score(step, step.batch()))

    (waste,) = find(body)
    assert (waste.lines[0].line, len(waste.operations)) == (24, 2)


def test_a_loss_that_is_read_is_no_metric() -> None:
    assert find(lambda step: train(step, step.batch())) == []


def test_a_metric_of_some_steps_is_as_it_should_be() -> None:
    def body(step: Step) -> None:
        train(step, step.batch())
        if step.number < 2:
            step.item(score(step, step.batch()))

    assert find(body) == []


def test_results_that_nothing_reads_are_another_waste() -> None:
    def body(step: Step) -> None:
        train(step, step.batch())
        score(step, step.batch())

    assert find(body) == []


def test_values_that_may_come_back_as_a_tensor_are_needed() -> None:
    def body(step: Step) -> None:
        x = step.batch()
        step.numpy(score(step, x))
        train(step, step.call("index", x, step.convert(8)))

    assert find(body) == []


def test_numbers_that_differ_from_step_to_step_may_be_what_was_read() -> None:
    def body(step: Step, changes: int) -> None:
        x = step.batch()
        step.item(score(step, x))
        train(step, step.call("mul", x, scalars=changes * step.number))

    assert find(lambda step: body(step, 1)) == []
    assert len(find(lambda step: body(step, 0))) == 1


def test_new_tensors_are_batches_only_if_a_loader_makes_them() -> None:
    def body(step: Step) -> None:
        step.item(score(step, step.old("noise")))
        train(step, step.batch())

    assert len(find(body, has_loader=True)) == 1
    assert find(body, has_loader=False) == []


def test_state_that_remains_is_no_metric() -> None:
    def body(step: Step) -> None:
        train(step, step.batch())
        kept = score(step, step.batch())
        step.call("add_", kept, into=step.old("average"), line=25)
        step.item(step.old("average"))

    assert find(body) == []


def test_a_program_that_decides_by_what_it_read_needs_it() -> None:
    def body(step: Step) -> None:
        x = step.batch()
        step.item(score(step, x))
        train(step, step.call("relu", x) if step.number == 2 else x)

    assert find(body) == []


def test_what_an_optimizer_reads_is_no_metric() -> None:
    def body(step: Step) -> None:
        x = step.batch()
        tried = step.call("mm", x, step.old("weight"), line=21)
        step.item(tried, line=50, flags=OPTIMIZER)
        train(step, x)

    assert find(body) == []
