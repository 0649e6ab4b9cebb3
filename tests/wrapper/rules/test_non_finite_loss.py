from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from perfwrap.rules import non_finite_loss as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule


def write(loop: Any, value: float | None, at: int = 12, steps: int = 40) -> None:
    for step in range(steps):
        loop.compute()
        if value is not None and step >= at:
            loop.journal.non_finite(value, "Tensor.item\x1ftrain.py\x1f30\x1fmain")
        loop.span("sync", 0.001, "Tensor.item", 0, 30)


def test_the_first_value_that_is_not_a_number_is_found_with_step_and_line(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, math.nan)
    finding = find(rule)
    assert "became NaN after 13 of 40 steps" in finding.sentence
    assert str(finding.location) == "train.py:30"
    assert finding.health


def test_it_is_shown_although_it_costs_no_time(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, math.inf)
    found = [finding for finding in diagnosis().findings if finding.rule == "non_finite_loss"]
    assert len(found) == 1
    assert "infinite" in found[0].sentence
    assert found[0].share == 0.0


def test_it_needs_no_twenty_steps(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, math.nan, at=2, steps=6)
    assert [finding.rule for finding in diagnosis().findings] == ["non_finite_loss"]


def test_finite_values_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, None)
    assert isinstance(ask(rule), Clear)


def test_without_the_probe_it_is_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, None)
    journal = loop.journal
    journal.describe("COVERAGE", "probe/sync", journal.text("it failed"), start=journal.now, duration=1)
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["non_finite_loss"]
    assert outcome.state == "not checked"
