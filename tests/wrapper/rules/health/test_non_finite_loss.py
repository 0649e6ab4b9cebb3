from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.health import non_finite_loss as rule
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


def test_the_steps_that_trained_with_it_are_its_cost(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, math.inf)
    result = diagnosis()
    assert result.findings[0].rule == "non_finite_loss"
    assert "infinite" in result.findings[0].sentence
    assert result.findings[0].share == pytest.approx(27 / 40, abs=0.03)
    assert result.verdict.id == "compute-bound"
    assert "Also: A value read at train.py:30 became infinite" in result.verdict.sentence


def test_a_single_one_is_shown_although_it_cost_no_time(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, math.inf, steps=13)
    write(loop, None)
    assert find(rule).share == 0.0


def test_values_that_are_finite_now_and_then_cost_less(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for step in range(40):
        loop.compute()
        if step % 4 == 0:
            loop.journal.non_finite(math.inf, "Tensor.item\x1ftrain.py\x1f30\x1fmain")
        loop.span("sync", 0.001, "Tensor.item", 0, 30)
    assert find(rule).share == pytest.approx(0.25, abs=0.03)


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
