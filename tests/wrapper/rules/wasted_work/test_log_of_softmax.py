from __future__ import annotations

from collections.abc import Callable

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, Rule
from perfwrap.rules.wasted_work import log_of_softmax as rule

from tests.wrapper.drawn_windows import Draw, Step

Inspect = Callable[[Draw], None]
Find = Callable[[Rule], Finding]
Ask = Callable[[Rule], Answer]


def entropy(step: Step, name: str = "_softmax") -> None:
    chances = step.call(name, step.batch(), line=21)
    step.train(step.call("log", step.call("add", chances, line=22), line=22))


def test_the_logarithm_of_a_softmax_is_found(inspect: Inspect, find: Find) -> None:
    inspect(entropy)
    finding = find(rule)
    assert finding.share == pytest.approx(0.5 * 3 / 5, abs=0.01)
    assert str(finding.location) == "train.py:22"
    assert "takes the logarithm of a softmax once" in finding.evidence[0]


def test_the_logarithm_of_something_else_is_clear(inspect: Inspect, ask: Ask) -> None:
    inspect(lambda step: entropy(step, "sigmoid"))
    assert isinstance(ask(rule), Clear)


def test_without_recorded_operations_it_is_not_checked(why: Callable[..., str]) -> None:
    assert "perfwrap inspect" in why(rule)


def test_the_recorders_reason_is_why_it_is_not_checked(why: Callable[..., str]) -> None:
    assert why(rule, "no window: the program forked") == "Operations were not recorded: the program forked."
