from __future__ import annotations

import pytest
from perfwrap.measures.dataflow.live_operations import find_dead
from perfwrap.measures.dataflow.unused_operations import find_partly_unused, find_unused
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.timeline.operation_window import DATA

from tests.wrapper.drawn_windows import Draw, Step, Tensor, draw_flow


def find(body: Draw) -> list[Waste]:
    flow = draw_flow(body)
    dead = find_dead(flow)
    assert dead is not None
    return find_unused(flow, dead)


def find_partly(body: Draw) -> list[Waste]:
    flow = draw_flow(body)
    dead = find_dead(flow)
    assert dead is not None
    return find_partly_unused(flow, dead.operations)


def test_an_unused_call_is_found_where_it_is_made() -> None:
    def body(step: Step) -> None:
        x = step.batch()
        for line in (5, 6):
            step.call("mm", x, line=(f"net.py:{line} auxiliary", "net.py:9 forward", "train.py:20 main"))
        hidden = step.call("mm", x, step.old("weight"), line=("net.py:10 forward", "train.py:20 main"))
        step.train(hidden)

    (waste,) = find(body)
    assert waste.share == pytest.approx(2 / 5)
    assert (waste.lines[0].file, waste.lines[0].line) == ("net.py", 9)


def test_unused_gradients_are_found_by_their_backward_pass() -> None:
    def body(step: Step) -> None:
        score = step.call("mm", step.batch(), step.old("critic"), line="gan.py:7 critic")
        step.backward(line=33)
        step.accumulate("critic.grad", step.gradient(score, score))
        step.clear("critic.grad")
        step.optimize(step.old("weight"), step.gradient(score, score))

    in_backward = [waste for waste in find(body) if waste.in_backward]
    assert [waste.other.line for waste in in_backward if waste.other] == [33]
    assert [line.line for line in in_backward[0].lines] == [7, 33]


def convolution(step: Step, weights_used: bool) -> None:
    hidden = step.call("convolution", step.batch(), step.old("critic"), line=21)
    step.backward(line=33)
    back, weights = step.gradient(hidden, hidden, name="convolution_backward", results=2)
    step.optimize(step.old("weight"), back, *([weights] if weights_used else []))


def test_half_of_the_backward_of_a_convolution_may_be_unused() -> None:
    (waste,) = find(lambda step: convolution(step, weights_used=False))
    assert waste.in_backward
    assert waste.share == pytest.approx(0.5 / 3)
    assert find(lambda step: convolution(step, weights_used=True)) == []


def test_data_for_the_next_step_is_not_looked_at() -> None:
    def body(step: Step) -> None:
        step.call("stack", step.batch(), flags=DATA)
        step.train(step.batch())

    assert find(body) == []


def last_row(step: Step, also: str = "") -> Tensor:
    """Draw a head that computes 64 rows of which one is read."""
    hidden = step.call("addmm", step.batch(64, 128), step.old("head"), line=21, shape=(64, 128))
    row = step.view(hidden, 1, 128, line=22)
    loss = step.call("mse_loss", row, line=23, shape=())
    if also == "rows":
        loss = step.call("add", loss, hidden, shape=())
    step.backward()
    gradient = step.gradient(loss, row, name="mse_loss_backward", shape=(1, 128))
    weights = step.gradient(hidden, gradient, hidden, shape=(128, 128))
    step.optimize(step.old("weight"), weights)
    if also == "next step":
        step.call("copy_", hidden, into=step.old("cache"))
    return hidden


def test_rows_that_nothing_reads_are_found() -> None:
    (waste,) = find_partly(last_row)
    assert waste.used == pytest.approx(1 / 64)
    assert waste.share == pytest.approx((1 - 1 / 64) * 2 / 6)  # with its backward
    assert waste.lines[0].line == 21


@pytest.mark.parametrize("also", ["rows", "next step"])
def test_results_that_are_also_read_as_a_whole_are_not(also: str) -> None:
    assert find_partly(lambda step: last_row(step, also)) == []


def test_rows_that_are_picked_one_by_one_count_together() -> None:
    def body(step: Step) -> None:
        hidden = step.call("relu", step.batch(64, 128), line=21, shape=(64, 128))
        picked = step.call("index", hidden, step.old("places"), line=22, shape=(16, 128))
        more = step.call("index", hidden, step.old("others"), line=22, shape=(8, 128))
        step.train(step.call("add", picked, more))

    (waste,) = find_partly(body)
    assert waste.used == pytest.approx(24 / 64)


def test_what_each_row_shares_is_not_partly_unused() -> None:
    def body(step: Step) -> None:
        hidden = step.call("cumsum", step.batch(64, 128), line=21, shape=(64, 128))
        step.train(step.call("mse_loss", step.view(hidden, 1, 128)))

    assert find_partly(body) == []


def test_the_operations_before_the_head_are_unused_in_the_same_part() -> None:
    def body(step: Step) -> None:
        hidden = step.call("gelu", step.batch(64, 128), line=20, shape=(64, 128))
        logits = step.call("addmm", step.old("bias"), hidden, step.old("head"), line=21, shape=(64, 128))
        step.train(step.call("mse_loss", step.view(logits, 1, 128), line=22))

    (waste,) = find_partly(body)
    assert len(waste.operations) == 2


def test_all_of_the_other_operand_of_a_product_is_used() -> None:
    def body(step: Step) -> None:
        support = step.call("gelu", step.batch(64, 128), line=20, shape=(64, 128))
        logits = step.call("mm", step.old("adjacency"), support, line=21, shape=(64, 128))
        step.train(step.call("mse_loss", step.view(logits, 1, 128), line=22))

    (waste,) = find_partly(body)
    assert len(waste.operations) == 1


def test_a_part_of_columns_says_nothing_about_rows() -> None:
    def body(step: Step) -> None:
        hidden = step.call("relu", step.batch(64, 128), line=21, shape=(64, 128))
        step.train(step.call("mse_loss", step.view(hidden, 64, 8, stride=(128, 1)), line=22))

    assert find_partly(body) == []
