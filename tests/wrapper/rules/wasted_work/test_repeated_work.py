from __future__ import annotations

from collections.abc import Callable

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, Rule
from perfwrap.rules.wasted_work import repeated_work as rule

from tests.wrapper.drawn_windows import Draw, Step

Inspect = Callable[[Draw], None]
Find = Callable[[Rule], Finding]
Ask = Callable[[Rule], Answer]


def forwards(step: Step, again: bool = True) -> None:
    x = step.batch()
    net = "net.py:8 forward"
    loss = step.call("mm", x, step.old("weight"), line=(net, "train.py:20 main"))
    other = x if again else step.batch()
    step.item(step.call("mm", other, step.old("weight"), line=(net, "train.py:25 main")))
    step.train(loss)


def losses(step: Step) -> None:
    hidden = step.call("mm", step.batch(), step.old("weight"), line=20)
    total = hidden
    for line in (30, 31):
        loss = step.call("mse_loss", hidden, step.batch(), line=line - 5)
        step.backward(line=line)
        total = step.accumulate("weight.grad", step.gradient(hidden, step.gradient(loss, loss)))
    step.optimize(step.old("weight"), total)
    step.clear("weight.grad")


def test_a_second_forward_on_the_same_values_is_found_with_the_first(inspect: Inspect, find: Find) -> None:
    inspect(forwards)
    finding = find(rule)
    assert finding.share == pytest.approx(1 / 5, abs=0.01)
    assert str(finding.location) == "train.py:25"
    assert finding.title.endswith("computes at train.py:25 again what train.py:20 has computed.")
    assert finding.advice == "Keep the result of train.py:20 and use it at train.py:25."


def test_backward_twice_through_the_same_part_gets_the_advice_to_add_the_losses(
    inspect: Inspect, find: Find
) -> None:
    inspect(losses)
    finding = find(rule)
    assert finding.share == pytest.approx(1 / 11, abs=0.01)
    assert str(finding.location) == "train.py:31"
    assert "2 backward passes of a step" in finding.evidence[0]
    assert "Add the losses" in finding.advice


@pytest.mark.parametrize(
    ("lines", "title", "advice"),
    [
        (
            (15, 16),
            "computes derivatives at train.py:16 that train.py:15 has computed.",
            "Call torch.autograd.grad once, at train.py:15, with the inputs of both lines.",
        ),
        (
            (15, 15),
            "computes derivatives at train.py:15 more than once.",
            "Call torch.autograd.grad once, at train.py:15, with all its inputs.",
        ),
    ],
)
def test_derivatives_by_several_inputs_are_to_be_one_call(
    inspect: Inspect, find: Find, lines: tuple[int, int], title: str, advice: str
) -> None:
    def body(step: Step) -> None:
        u = step.call("mm", step.batch(), step.old("weight"), line=12)
        ones = step.call("ones_like", u, line=14)
        found = []
        for line in lines:
            step.backward(line=line)
            found.append(step.gradient(u, ones, creates=True))
        step.train(step.call("add", *found, line=18))

    inspect(body)
    finding = find(rule)
    assert finding.title.endswith(title)
    assert finding.advice == advice


def test_a_state_dict_for_each_tensor_is_found_without_a_first_line(inspect: Inspect, find: Find) -> None:
    def body(step: Step) -> None:
        for _ in range(4):
            step.view(step.old("weight"), 8, 8, name="detach", line="ema.py:7 update")
        step.train(step.batch())

    inspect(body)
    finding = find(rule)
    assert "repeats the same work at ema.py:7" in finding.title
    assert finding.advice == "Call it once per step and keep the result."


def test_forwards_on_other_values_are_clear(inspect: Inspect, ask: Ask) -> None:
    inspect(lambda step: forwards(step, again=False))
    assert isinstance(ask(rule), Clear)


def test_without_recorded_operations_it_is_not_checked(why: Callable[..., str]) -> None:
    assert "perfwrap inspect" in why(rule)


def test_the_recorders_reason_is_why_it_is_not_checked(why: Callable[..., str]) -> None:
    assert why(rule, "no window: the program forked") == "Operations were not recorded: the program forked."
