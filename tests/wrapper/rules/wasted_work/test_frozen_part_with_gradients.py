from __future__ import annotations

from collections.abc import Callable

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule
from perfwrap.rules.wasted_work import frozen_part_with_gradients as rule

from tests.wrapper.drawn_windows import Draw, Step

Inspect = Callable[[Draw], None]
Find = Callable[[Rule], Finding]
Ask = Callable[[Rule], Answer]


def backbone(step: Step, detached: bool = False) -> None:
    features = step.call("mm", step.batch(), step.old("backbone"), line=20)
    logits = step.call("mm", features, step.old("head"), line=21)
    step.backward(line=30)
    gradient = step.gradient(logits, logits)
    if not detached:
        step.accumulate("backbone.grad", step.gradient(features, gradient), owned=False)
    step.optimize(step.old("head"), gradient)


def test_gradients_of_a_part_that_is_not_trained_are_found(inspect: Inspect, find: Find) -> None:
    inspect(backbone)
    finding = find(rule)
    assert finding.share == pytest.approx(2 / 6, abs=0.01)
    assert str(finding.location) == "train.py:20"
    assert "requires_grad_(False)" in finding.advice


def test_a_part_without_gradients_is_clear(inspect: Inspect, ask: Ask) -> None:
    inspect(lambda step: backbone(step, detached=True))
    assert isinstance(ask(rule), Clear)


def test_with_gradients_from_elsewhere_it_is_not_checked(inspect: Inspect, ask: Ask) -> None:
    inspect(lambda step: step.optimize(step.old("weight"), step.batch()))
    assert ask(rule) == NotChecked("An optimizer reads gradients that no recorded operation made.")


def test_without_recorded_operations_it_is_not_checked(why: Callable[..., str]) -> None:
    assert "perfwrap inspect" in why(rule)


def test_the_recorders_reason_is_why_it_is_not_checked(why: Callable[..., str]) -> None:
    assert why(rule, "no window: the program forked") == "Operations were not recorded: the program forked."
