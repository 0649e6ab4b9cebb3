from __future__ import annotations

import pytest
from perfwrap.measures.dataflow.live_operations import find_dead
from perfwrap.timeline.operation_window import DATA

from tests.wrapper.drawn_windows import Draw, Step, draw_flow


def dead(body: Draw) -> list[str]:
    """Return the functions whose results reach nothing."""
    flow = draw_flow(body)
    found = find_dead(flow)
    assert found is not None
    return [flow.name(number) for number in sorted(found.operations)]


def test_what_reaches_the_optimizer_is_used_and_what_does_not_is_not() -> None:
    def body(step: Step) -> None:
        x = step.batch()
        step.call("sin", step.call("cos", x))
        step.train(step.call("mm", x, step.old("weight")))

    assert dead(body) == ["cos", "sin"]


def test_what_is_used_in_the_next_step_is_used() -> None:
    def body(step: Step) -> None:
        step.call("mul", step.batch(), into=step.old("state"))
        step.train(step.call("add", step.batch(), step.old("state")))

    assert dead(body) == []


def test_state_that_outlives_its_step_counts_as_used() -> None:
    def body(step: Step) -> None:
        step.train(step.batch())
        step.call("lerp_", step.call("mul", step.old("weight")), into=step.old("average"))

    assert dead(body) == []


def test_memory_of_the_step_itself_does_not() -> None:
    def body(step: Step) -> None:
        total = step.call("zeros")
        step.call("add_", step.batch(), into=total)
        step.train(step.batch())

    assert dead(body) == ["zeros", "add_"]


@pytest.mark.parametrize("how", ["item", "numpy", "print", "nonzero"])
def test_what_the_host_or_an_unknown_function_reads_is_used(how: str) -> None:
    def body(step: Step) -> None:
        error = step.call("mean", step.batch())
        if how == "item":
            step.item(error)
        elif how == "numpy":
            step.numpy(step.view(error, 1))
        elif how == "print":
            step.call("extension::encode", error)
        else:
            step.call("nonzero", error)
        step.train(step.batch())

    assert dead(body) == []


def test_views_and_memory_without_values_are_no_work() -> None:
    def body(step: Step) -> None:
        step.view(step.batch(), 1, 8)
        step.call("empty")
        step.train(step.batch())

    assert dead(body) == []


def test_gradients_of_parameters_that_no_optimizer_has_are_not_used() -> None:
    def body(step: Step) -> None:
        hidden = step.call("mm", step.batch(), step.old("frozen"))
        step.backward()
        step.accumulate("frozen.grad", step.gradient(hidden, hidden), owned=False)
        step.optimize(step.old("weight"), step.gradient(hidden, hidden))

    assert dead(body) == ["mm", "add_"]


def test_gradients_that_another_optimizer_reads_are_used() -> None:
    def body(step: Step) -> None:
        hidden = step.call("mm", step.batch(), step.old("weight"))
        step.backward()
        first = step.accumulate("weight.grad", step.gradient(hidden, hidden))
        second = step.accumulate("scale.grad", step.gradient(hidden, hidden))
        step.optimize(step.old("weight"), first, line=50)
        step.optimize(step.old("scale"), second, line=51)
        step.clear("weight.grad")
        step.clear("scale.grad")

    assert dead(body) == []


def test_gradients_that_are_cleared_before_they_are_used_are_not() -> None:
    def body(step: Step) -> None:
        hidden = step.call("mm", step.batch(), step.old("critic"))
        step.backward()
        step.accumulate("critic.grad", step.gradient(hidden, hidden))
        step.clear("critic.grad")
        step.optimize(step.old("weight"), step.gradient(hidden, hidden))

    assert dead(body) == ["mm", "add_", "zero_"]


def test_nothing_is_said_if_gradients_come_from_unrecorded_operations() -> None:
    def body(step: Step) -> None:
        step.call("sin", step.batch())
        step.optimize(step.old("weight"), step.batch())

    assert find_dead(draw_flow(body)) is None


def test_numbers_of_an_optimizer_are_no_gradients() -> None:
    def body(step: Step) -> None:
        step.call("sin", step.batch())
        step.optimize(step.old("weight"), step.batch(1), step.call("mul", step.batch(), flags=DATA))

    assert dead(body) == ["sin"]
