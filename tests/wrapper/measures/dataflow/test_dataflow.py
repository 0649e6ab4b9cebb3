from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from perfwrap.measures.account.lines import Line
from perfwrap.measures.dataflow.dataflow import (
    MAX_ADDED_NS,
    MAX_GAP_NS,
    MIN_ADDED_NS,
    Dataflow,
    middle,
)
from perfwrap.timeline.operation_window import OperationWindow

from tests.wrapper.drawn_windows import TOOK, Step, draw, draw_flow


def pair(step: Step) -> None:
    x = step.call("mm", step.batch(), ns=300_000)
    step.train(step.call("relu", x))


def with_bare(window: OperationWindow, ns: int) -> OperationWindow:
    return msgspec.structs.replace(window, bare=[ns])


def test_the_time_of_an_operation_is_the_shortest_of_the_watched_steps() -> None:
    took = iter([900, 500, 300, 900, 100, 200])

    def body(step: Step) -> None:
        step.call("mm", step.batch(), ns=next(took))

    flow = draw_flow(body)
    assert flow.time(flow.first) == 100
    assert flow.time(0) == 0
    assert middle([1, 2, 3, 4]) == 3


def test_a_step_with_other_operations_has_no_part_in_it() -> None:
    def body(step: Step) -> None:
        step.call("mm", step.batch(), ns=100 if step.window == 0 else 1)
        if step.window:
            step.call("log", step.batch())

    flow = draw_flow(body)
    assert flow.time(flow.first) == 100


def test_on_a_gpu_its_own_time_counts() -> None:
    (window,) = draw(pair, windows=1)
    first = window.first_operations[1]
    flow = Dataflow(msgspec.structs.replace(window, gpu=[(first, 7)]))
    assert flow.time(flow.first) == 7
    assert flow.time(flow.first + 1) == TOOK


@pytest.mark.parametrize(
    ("bare", "added"), [(680_000, 5_000), (700_000, MIN_ADDED_NS), (1_000, MAX_ADDED_NS)]
)
def test_what_the_recorder_adds_makes_the_step_as_long_as_steps_before(bare: int, added: float) -> None:
    def body(step: Step) -> None:
        for _ in range(4):
            step.call("mm", step.batch(), ns=155_000, gap=20_000)

    flow = Dataflow(with_bare(draw(body, windows=1)[0], bare))
    assert flow.added_ns == added
    assert flow.own_gaps == [20_000 - added] * 4
    assert flow.step_ns == pytest.approx(700_000 - 4 * added)


def test_beside_other_programs_a_short_step_shows_what_the_recorder_adds() -> None:
    def body(step: Step) -> None:
        for _ in range(4):
            step.call("mm", step.batch(), ns=155_000, gap=20_000)

    (window,) = draw(body, windows=1)
    flow = Dataflow(msgspec.structs.replace(window, bare=[1_000, 660_000, 670_000, *[1_400_000] * 7]))
    assert flow.added_ns == 10_000
    assert flow.bare_ns == 1_400_000


def test_a_long_gap_is_not_the_preparation_of_the_operation_after_it() -> None:
    def body(step: Step) -> None:
        step.call("mm", step.batch(), ns=100, gap=900_000)

    flow = draw_flow(body)
    assert flow.cost(flow.first) == 100 + MAX_GAP_NS
    assert flow.cost(0) == 0


def test_shares_count_each_operation_once() -> None:
    flow = draw_flow(pair)
    assert flow.share([flow.first, flow.first]) == pytest.approx(3 / 6)
    assert flow.share(flow.step) == pytest.approx(1)


def test_the_bare_step_is_that_of_the_fastest_window() -> None:
    one, two = draw(pair)
    assert Dataflow(with_bare(one, 900), [with_bare(two, 700)]).bare_ns == 700


def test_backward_has_the_line_of_its_forward_operation_and_is_called_elsewhere() -> None:
    def body(step: Step) -> None:
        hidden = step.call("mm", step.batch(), line=("net.py:8 forward", "train.py:20 main"))
        step.backward(line="train.py:30 main")
        step.gradient(hidden, hidden)

    flow = draw_flow(body)
    forward, backward = flow.step
    assert flow.forward_of(backward) == forward
    assert flow.with_backward([forward]) == [forward, backward]
    assert flow.line(backward) == Line("net.py", 8, "forward")
    assert flow.outermost(backward).line == 20
    assert flow.caller_of_backward(backward)[0].line == 30
    assert flow.caller_of_backward(forward) == []


def test_the_line_of_library_code_is_the_programs_line_that_called_it() -> None:
    def body(step: Step) -> None:
        step.call("mm", step.batch(), line=("lib/linear.py:134 forward", "net.py:8 forward"))
        step.call("mm", step.batch(), line="lib/worker.py:7 run")

    flow = draw_flow(body)
    assert [flow.line(number).line for number in flow.step] == [8, 7]


CHAIN = ("net.py:5 mask", "net.py:9 forward", "train.py:20 main")


def roots(also: Callable[[Step], object]) -> set[int]:
    """Return the lines to change if two operations of a helper are wasted, and what ``also`` draws is not."""

    def body(step: Step) -> None:
        step.call("ones", line=CHAIN)
        step.call("tril", line=CHAIN)
        also(step)

    flow = draw_flow(body)
    return {line.line for line in flow.roots(flow.step[:2]).values()}


def test_the_line_to_change_is_the_outermost_all_of_whose_work_is_wasted() -> None:
    assert roots(lambda step: None) == {20}
    assert roots(lambda step: step.call("mm", line=("net.py:10 forward", "train.py:20 main"))) == {9}
    assert roots(lambda step: step.call("mm", line=("net.py:6 mask", *CHAIN[1:]))) == {5}


def test_work_that_takes_nearly_no_time_does_not_change_the_line() -> None:
    assert roots(lambda step: step.call("mm", line=("net.py:6 mask", *CHAIN[1:]), ns=2_000)) == {20}


def test_a_helper_that_is_also_called_for_other_work_is_wasted_only_where_it_is_called() -> None:
    other = ("net.py:5 mask", "net.py:12 forward", "train.py:20 main")
    assert roots(lambda step: step.call("mm", line=other)) == {9}
