from __future__ import annotations

import pytest
from perfwrap.measures.dataflow.repeated_operations import find_repeated
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.measures.dataflow.weight_casts import split_casts

from tests.wrapper.drawn_windows import Draw, Step, draw_flow


def split(body: Draw) -> tuple[list[Waste], list[Waste]]:
    flow = draw_flow(body)
    return split_casts(flow, find_repeated(flow, frozenset(), frozenset()))


def test_casts_of_the_same_weights_in_each_micro_batch_are_one_waste() -> None:
    def body(step: Step) -> None:
        for _ in range(3):
            x = step.batch()
            for line, name in ((21, "first"), (22, "second")):
                x = step.call("mm", x, step.call("_to_copy", step.old(name), line=line), line=line)
        step.train(x, step.old("first"), step.old("second"))

    (waste,), rest = split(body)
    assert waste.count == 4
    assert sorted(line.line for line in waste.lines) == [21, 22]
    assert rest == []


def test_the_backward_of_each_cast_remains() -> None:
    def body(step: Step) -> None:
        for _ in range(2):
            cast = step.call("_to_copy", step.old("weight"), line=21)
            hidden = step.call("mm", step.batch(), cast, line=22)
            step.backward()
            gradient = step.gradient(cast, step.gradient(hidden, hidden), name="_to_copy")
            total = step.accumulate("weight.grad", gradient)
        step.optimize(step.old("weight"), total)
        step.clear("weight.grad")

    (waste,), _ = split(body)
    assert waste.share == pytest.approx(1 / 12)
    assert waste.count == 1


def test_casts_of_the_batch_are_repeated_work() -> None:
    def body(step: Step) -> None:
        x = step.batch()
        one, two = (step.call("_to_copy", x, line=line) for line in (21, 22))
        step.train(step.call("add", one, two))

    casts, rest = split(body)
    assert casts == []
    assert [waste.lines[0].line for waste in rest] == [22]


def test_a_cast_after_an_update_of_the_weights_is_needed() -> None:
    def body(step: Step) -> None:
        for _ in range(2):
            hidden = step.call("mm", step.batch(), step.call("_to_copy", step.old("weight"), line=21))
            step.train(hidden)

    assert split(body) == ([], [])
