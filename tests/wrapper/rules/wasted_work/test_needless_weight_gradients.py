from __future__ import annotations

from collections.abc import Callable

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule
from perfwrap.rules.wasted_work import needless_weight_gradients as rule

from tests.wrapper.drawn_windows import Draw, Step

Inspect = Callable[[Draw], None]
Find = Callable[[Rule], Finding]
Ask = Callable[[Rule], Answer]


def generator(step: Step, needless: bool = True) -> None:
    fake = step.call("mm", step.call("rand"), step.old("generator"), line=19)
    score = step.call("mm", fake, step.old("critic"), line=20)
    step.backward(line=30)
    if needless:
        step.accumulate("critic.grad", step.gradient(score, fake))
    step.optimize(step.old("generator"), step.gradient(fake, step.gradient(score, score)))
    step.clear("critic.grad")
    other = step.call("mm", step.batch(), step.old("critic"), line=40)
    step.backward(line=41)
    step.optimize(step.old("critic"), step.accumulate("critic.grad", step.gradient(other, other)))
    step.clear("critic.grad")


def test_gradients_that_are_cleared_before_they_are_used_are_found(inspect: Inspect, find: Find) -> None:
    inspect(generator)
    finding = find(rule)
    assert finding.share == pytest.approx(2 / 14, abs=0.005)
    assert str(finding.location) == "train.py:30"
    assert "of this backward pass, for the calls at train.py:20" in finding.evidence[0]


def test_passes_all_of_whose_gradients_are_used_are_clear(inspect: Inspect, ask: Ask) -> None:
    inspect(lambda step: generator(step, needless=False))
    assert isinstance(ask(rule), Clear)


def test_with_gradients_from_elsewhere_it_is_not_checked(inspect: Inspect, ask: Ask) -> None:
    inspect(lambda step: step.optimize(step.old("weight"), step.batch()))
    assert ask(rule) == NotChecked("An optimizer reads gradients that no recorded operation made.")


def test_without_recorded_operations_it_is_not_checked(why: Callable[..., str]) -> None:
    assert "perfwrap inspect" in why(rule)


def test_the_recorders_reason_is_why_it_is_not_checked(why: Callable[..., str]) -> None:
    assert why(rule, "no window: the program forked") == "Operations were not recorded: the program forked."
