from __future__ import annotations

import pytest
from perfwrap.measures.dataflow.live_operations import NOTHING_DEAD
from perfwrap.measures.dataflow.unchanging_operations import find_unchanging
from perfwrap.measures.dataflow.waste import Waste

from tests.wrapper.drawn_windows import Draw, Step, draw_flow


def find(body: Draw, windows: int = 2) -> list[Waste]:
    return find_unchanging(draw_flow(body, windows), NOTHING_DEAD.operations)[0]


def names(body: Draw, windows: int = 2) -> list[str]:
    flow = draw_flow(body, windows)
    return [flow.name(number) for waste in find(body, windows) for number in waste.operations]


def adjacency(step: Step, differs: bool = False) -> None:
    degrees = step.call("sum", step.old("edges"), line=11, differs=differs)
    normal = step.call("div", step.old("edges"), degrees, line=12, differs=differs)
    step.train(step.call("mm", normal, step.old("weight"), step.batch(), line=13))


def test_what_follows_from_old_memory_alone_is_unchanging() -> None:
    (waste,) = find(adjacency)
    assert names(adjacency) == ["sum", "div"]
    assert waste.share == pytest.approx(2 / 5)
    assert [line.line for line in waste.lines] == [11, 12]
    assert not waste.converted


def test_results_with_other_bytes_in_another_step_or_window_are_not() -> None:
    assert find(lambda step: adjacency(step, differs=True)) == []


def test_the_checksums_of_one_window_alone_are_compared_between_its_steps() -> None:
    assert names(adjacency, windows=1) == ["sum", "div"]
    assert names(lambda step: adjacency(step, differs=True), windows=1) == []


@pytest.mark.parametrize("source", ["batch", "weight", "rand"])
def test_what_follows_from_the_batch_a_parameter_or_random_numbers_is_not(source: str) -> None:
    def body(step: Step) -> None:
        weight = step.old("weight")
        chosen = {"batch": step.batch(), "weight": weight, "rand": step.call("rand")}[source]
        mask = step.call("mul", step.old("mask"), chosen, line=11)
        step.train(step.call("add", mask, step.batch(), line=12))

    assert find(body) == []


def test_memory_that_is_filled_with_something_else_later_must_be_made_anew() -> None:
    def body(step: Step) -> None:
        buffer = step.call("zeros", line=11)
        step.call("index_put_", step.batch(), into=buffer, line=12)
        step.train(buffer)

    assert find(body) == []


def test_memory_that_is_filled_with_what_is_unchanging_too_is() -> None:
    def body(step: Step) -> None:
        mask = step.call("zeros", line=11)
        step.call("fill_", into=mask, line=12)
        step.train(step.call("add", mask, step.batch(), line=13))

    assert names(body) == ["zeros", "fill_"]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_view_is_needed_if_something_else_uses_it(elsewhere: bool) -> None:
    def body(step: Step) -> None:
        rows = step.view(step.old("table"), 1, 8, line=11)
        grid = step.call("mul", rows, rows, line=12)
        step.train(step.call("add", grid, rows if elsewhere else step.batch(), step.batch(), line=13))

    assert names(body) == (["mul"] if elsewhere else ["select", "mul"])


def test_the_conversion_of_values_of_python_costs_the_time_before_it_too() -> None:
    def body(step: Step) -> None:
        bare = 900_000 - step.number  # the gap is not an operation's own preparation
        anchors = step.convert(line=11, gap=bare, ns=0)
        step.train(step.call("add", anchors, step.batch(), line=12))

    (waste,) = find(body)
    assert waste.converted
    assert waste.lines[0].line == 11


def test_a_helper_all_of_whose_work_is_unchanging_is_named_where_it_is_called() -> None:
    def body(step: Step) -> None:
        mask = step.call("ones", line=("net.py:5 mask", "net.py:20 forward", "train.py:9 main"))
        mask = step.call("tril", mask, line=("net.py:6 mask", "net.py:20 forward", "train.py:9 main"))
        scores = step.call("mm", step.batch(), mask, line=("net.py:21 forward", "train.py:9 main"))
        step.train(scores)

    (waste,) = find(body)
    assert [(line.file, line.line) for line in waste.lines] == [("net.py", 20)]
    assert [line.line for line in waste.callers] == [20, 9]


def test_an_operation_with_other_numbers_in_another_step_is_not() -> None:
    def body(step: Step) -> None:
        rate = step.call("mul", step.old("ones"), line=11, scalars=step.number)
        step.train(step.call("add", rate, step.batch(), line=12))

    assert find(body) == []
