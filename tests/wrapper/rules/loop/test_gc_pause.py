from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.journal_format import FIELD_SEPARATOR, INSTANTS
from perfwrap.measures.loop import garbage
from perfwrap.rules.loop import gc_pause as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule

MS = 1_000_000


def write(loop: Any, pause: float, every: int = 1, steps: int = 40, line: int | None = None) -> None:
    for step in range(steps):
        loop.compute()
        if step % every == 0:
            loop.span("gc", pause, "", 2, line)


def test_collecting_in_each_step_is_found(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, pause=10)
    finding = find(rule)
    assert finding.share == pytest.approx(0.5, abs=0.05)
    assert "gc.collect()" in finding.advice
    assert "gc.freeze()" in finding.advice


def test_the_line_that_collects_is_named_when_it_is_known(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, pause=10, line=33)
    finding = find(rule)
    assert str(finding.location) == "train.py:33"
    assert "requests most of that at train.py:33" in finding.evidence[0]
    assert "Remove the collection at train.py:33 from the step" in finding.advice


def test_automatic_collections_are_no_call_of_the_programs(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, pause=10)
    finding = find(rule)
    assert finding.location is None
    assert "out of the step" not in finding.advice
    assert "If the loop calls" not in finding.advice


def test_the_line_that_makes_the_objects_is_named_if_samples_show_it(
    loop: Any, find: Callable[[Rule], Finding], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The samples in a journal are the recorder's own; here they are taken for py-spy's.
    monkeypatch.setattr(garbage, "OUTSIDE", "recorder")
    for step in range(40):
        loop.compute()
        begin = loop.journal.now
        loop.span("gc", 20, "", 2)
        for line, count in ((95, 3), (12, 1 if step % 2 else 0)):
            label = FIELD_SEPARATOR.join(("", "tasks.py", str(line), "sample"))
            if count:
                loop.journal.record(INSTANTS["STACK"], begin + 5 * MS, MS, count, label, 1)
    finding = find(rule)
    assert str(finding.location) == "tasks.py:95"
    assert "Make fewer objects at tasks.py:95" in finding.advice
    assert any("gc.freeze()" in option.edit for option in finding.options)


def test_a_line_that_asks_for_a_few_is_not_blamed_for_pythons_own(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    for step in range(60):
        loop.compute()
        loop.span("gc", 5, "", 1)
        if step % 20 == 19:
            loop.span("gc", 10, "", 2, 33)
    assert find(rule).location is None


def test_now_and_then_a_long_pause_is_found(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, pause=100, every=10)
    finding = find(rule)
    assert finding.share > 0.4
    assert "pauses of up to 100 ms" in finding.sentence


def test_short_collections_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, pause=0.1)
    assert isinstance(ask(rule), Clear)


def test_without_the_probe_it_is_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, pause=10)
    journal = loop.journal
    journal.describe("COVERAGE", "probe/garbage", journal.text("it failed"), start=journal.now, duration=1)
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["gc_pause"]
    assert outcome.state == "not checked"
