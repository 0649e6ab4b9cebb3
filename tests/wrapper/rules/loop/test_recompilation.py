from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.loop import recompilation as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule, Scope


def write(loop: Any, ms: float, every: int = 10, steps: int = 60) -> None:
    for step in range(steps):
        loop.compute()
        if step % every == every - 1:
            loop.span("compile", ms, "compile", step // every, 14)


def mark(loop: Any, what: str, reason: str) -> None:
    detail = "\x1f".join(("train.py", "14", "forward", "2", reason))
    loop.journal.describe("MARK", what, loop.journal.text(detail))


def test_compiling_again_is_found_at_the_function(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, ms=100)
    finding = find(rule)
    assert finding.share == pytest.approx(0.5, abs=0.05)
    assert str(finding.location) == "train.py:14"
    assert finding.saving == pytest.approx((1 - finding.share, 1 - finding.share / 2))
    assert "Run every case once" in finding.advice


def test_the_guard_that_failed_is_quoted(loop: Any, find: Callable[[Rule], Finding]) -> None:
    mark(loop, "recompile", "tensor 'x' size mismatch at index 1. expected 24, actual 28")
    mark(loop, "recompile_limit", "")
    write(loop, ms=100)
    finding = find(rule)
    assert any("expected 24, actual 28" in text and "train.py:14" in text for text in finding.evidence)
    assert any("Recompile limit reached" in text for text in finding.evidence)
    assert "dynamic=True" in finding.advice


def test_other_guards_have_another_advice(loop: Any, find: Callable[[Rule], Finding]) -> None:
    mark(loop, "recompile", "self.stage == 'warm0'")
    write(loop, ms=100)
    assert "as a tensor" in find(rule).advice


def test_compiling_before_the_loop_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    loop.span("compile", 2000, "compile", 0, 14)
    write(loop, ms=0.1)
    assert isinstance(ask(rule), Clear)


def test_no_time_is_sold_twice(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, ms=100)
    found = {finding.rule for finding in diagnosis().findings if finding.scope is not Scope.RUN}
    assert "recompilation" in found
    assert "slow_steps" not in found


def test_without_the_probe_it_is_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, ms=100)
    journal = loop.journal
    note = journal.text("this version of torch does not tell")
    journal.describe("COVERAGE", "probe/compilation", note, start=journal.now, duration=1)
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["recompilation"]
    assert outcome.state == "not checked"
    assert "does not tell" in outcome.why
