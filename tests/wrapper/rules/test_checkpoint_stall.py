from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules import checkpoint_stall as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule


def write(loop: Any, save: float, every: int = 5, steps: int = 40) -> None:
    for step in range(steps):
        loop.compute()
        if step % every == every - 1:
            loop.span("save", save, "", 3 << 20, 40)


def test_frequent_saving_is_found_with_a_better_rhythm(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, save=50)
    finding = find(rule)
    assert finding.share == pytest.approx(0.5, abs=0.05)
    assert str(finding.location) == "train.py:40"
    assert "instead of every 5" in finding.advice
    assert "Save every 500 steps" in finding.advice
    assert "3 MiB each" in finding.evidence[0]


def test_rare_saving_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, save=1, every=20)
    assert isinstance(ask(rule), Clear)


def test_without_the_probe_it_is_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, save=50)
    journal = loop.journal
    journal.describe(
        "COVERAGE", "probe/serialization", journal.text("it failed"), start=journal.now, duration=1
    )
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["checkpoint_stall"]
    assert outcome.state == "not checked"
