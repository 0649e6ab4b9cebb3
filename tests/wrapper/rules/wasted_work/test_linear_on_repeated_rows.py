from __future__ import annotations

from collections.abc import Callable

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, Rule
from perfwrap.rules.wasted_work import linear_on_repeated_rows as rule

from tests.wrapper.drawn_windows import Draw, Step

Inspect = Callable[[Draw], None]
Find = Callable[[Rule], Finding]
Ask = Callable[[Rule], Answer]


def project(step: Step, rows: int = 10) -> None:
    taken = step.call("index", step.batch(rows, 8), step.batch(40), shape=(40, 8), line=21)
    weight = step.old("weight", 8, 4)
    step.train(step.call("mm", taken, weight, shape=(40, 4), line=22), weight)


def test_a_layer_on_rows_that_are_taken_several_times_is_found(inspect: Inspect, find: Find) -> None:
    inspect(project)
    finding = find(rule)
    assert finding.share == pytest.approx((0.75 * 2 + 0.5) / 4, abs=0.01)
    assert str(finding.location) == "train.py:22"
    assert finding.evidence == (
        "A linear layer at train.py:22 and nothing else reads what train.py:21 makes; before it there are 25 % as "
        "many rows. 3 operations with backward.",
    )


def test_a_layer_on_rows_of_its_own_is_clear(inspect: Inspect, ask: Ask) -> None:
    inspect(lambda step: project(step, rows=40))
    assert isinstance(ask(rule), Clear)


def test_without_recorded_operations_it_is_not_checked(why: Callable[..., str]) -> None:
    assert "perfwrap inspect" in why(rule)
