from __future__ import annotations

import pytest
from perfwrap.measures.dataflow.softmax_logs import find_softmax_logs

from tests.wrapper.drawn_windows import Step, draw_flow


@pytest.mark.parametrize("between", [None, "add", "clamp", "clamp_min"])
def test_the_logarithm_of_a_softmax_is_found(between: str | None) -> None:
    def body(step: Step) -> None:
        chances = step.call("_softmax", step.batch(), line=21)
        safe = step.call(between, chances, line=22) if between else chances
        step.train(step.call("log", safe, line=22))

    (waste,) = find_softmax_logs(draw_flow(body))
    assert [line.line for line in waste.lines] == [22, 21]
    assert waste.count == 1
    assert waste.share == pytest.approx(0.5 * 3 / (4 + bool(between)))  # with the backward of the logarithm


def test_a_softmax_and_a_logarithm_of_something_else_are_not() -> None:
    def body(step: Step) -> None:
        chances = step.call("_softmax", step.batch(), line=21)
        step.train(step.call("mul", chances, step.call("log", step.call("add", step.batch()))))

    assert find_softmax_logs(draw_flow(body)) == []


def test_all_logarithms_of_a_step_are_one_waste_with_their_backward() -> None:
    def body(step: Step) -> None:
        for line in (21, 22):
            log = step.call("log", step.call("_softmax", step.batch(), line=line), line=line)
            step.backward()
            step.optimize(step.old("weight"), step.gradient(log, log, name="div"))

    (waste,) = find_softmax_logs(draw_flow(body))
    assert waste.count == 2
    assert len(waste.operations) == 6
