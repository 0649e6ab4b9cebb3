from __future__ import annotations

from collections.abc import Callable

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, Rule
from perfwrap.rules.wasted_work import full_sort as rule

from tests.wrapper.drawn_windows import Draw, Step

Inspect = Callable[[Draw], None]
Find = Callable[[Rule], Finding]
Ask = Callable[[Rule], Answer]


def nearest(step: Step, count: int = 4) -> None:
    places = step.sort(8, 32, line=21)[1]
    taken = step.view(places, 8, count, name="slice", stride=(32, 1))
    step.train(step.call("gather", step.batch(), taken, line=22))


def test_a_sort_of_which_few_entries_are_read_is_found(inspect: Inspect, find: Find) -> None:
    inspect(nearest)
    finding = find(rule)
    assert finding.share == pytest.approx(0.85 / 5, abs=0.01)
    assert str(finding.location) == "train.py:21"
    assert finding.evidence == ("A step sorts once, at train.py:21, and reads 12 % of the entries.",)


def test_a_sort_of_which_many_entries_are_read_is_clear(inspect: Inspect, ask: Ask) -> None:
    inspect(lambda step: nearest(step, 16))
    assert isinstance(ask(rule), Clear)


def test_without_recorded_operations_it_is_not_checked(why: Callable[..., str]) -> None:
    assert "perfwrap inspect" in why(rule)
