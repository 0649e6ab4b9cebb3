from __future__ import annotations

from collections.abc import Callable

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, Rule
from perfwrap.rules.wasted_work import materialised_broadcast as rule

from tests.wrapper.drawn_windows import Draw, Step

Inspect = Callable[[Draw], None]
Find = Callable[[Rule], Finding]
Ask = Callable[[Rule], Answer]


PAIRS = (256, 256)


def distances(step: Step, copies: bool = True) -> None:
    x = step.batch(256)
    pairs = step.call("repeat", x, line=21, shape=PAIRS) if copies else step.view(x, *PAIRS, stride=(0, 1))
    difference = step.call("sub", pairs, x, line=22, shape=PAIRS)
    step.train(step.call("sum", difference, line=23, shape=()))


def test_copies_until_they_are_reduced_are_found(inspect: Inspect, find: Find) -> None:
    inspect(distances)
    finding = find(rule)
    assert finding.share == pytest.approx(4 / 5, abs=0.01)
    assert finding.location is not None
    assert finding.location.file == "train.py"
    assert "The copies alone are 20 % of a step" in finding.evidence[0]
    assert finding.saving[1] > 0.8  # the chain remains if only the copies go


def test_broadcasting_without_copies_is_clear(inspect: Inspect, ask: Ask) -> None:
    inspect(lambda step: distances(step, copies=False))
    assert isinstance(ask(rule), Clear)


def test_without_recorded_operations_it_is_not_checked(why: Callable[..., str]) -> None:
    assert "perfwrap inspect" in why(rule)


def test_the_recorders_reason_is_why_it_is_not_checked(why: Callable[..., str]) -> None:
    assert why(rule, "no window: the program forked") == "Operations were not recorded: the program forked."
