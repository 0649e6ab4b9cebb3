from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, Rule
from perfwrap.rules.transfers import empty_cache_in_step as rule


def train(loop: Any, every: int, steps: int = 60) -> None:
    for step in range(steps):
        loop.compute()
        if step % every == every - 1:
            loop.span("empty_cache", 2, "empty_cache", line=26)


def test_a_call_in_each_step_is_found_with_its_line_and_time(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    train(loop, every=1)
    finding = find(rule)
    assert finding.share == pytest.approx(2 / 12, abs=0.02)
    assert str(finding.location) == "train.py:26"
    assert finding.verdict == "memory-bound"


def test_a_call_now_and_then_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    train(loop, every=30)
    assert isinstance(ask(rule), Clear)


def test_without_steps_it_is_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    train(loop, every=1, steps=3)
    states = {outcome.rule: outcome.state for outcome in diagnosis().outcomes}
    assert states["empty_cache_in_step"] == "not checked"
