from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfwrap.rules.model import Answer, Clear, Finding, Rule, Scope
from perfwrap.rules.run import slow_start as rule

SECOND = 1_000


def write(loop: Any, start: float, steps: int = 100) -> None:
    loop.span("import", 1.5 * SECOND, "torch")
    loop.python(start)
    for _ in range(steps):
        loop.compute(40, 50, 10)


def test_a_long_start_is_found_as_a_part_of_the_run(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, start=20 * SECOND)
    finding = find(rule)
    assert 0.5 < finding.share < 0.7
    assert finding.scope is Scope.RUN
    assert finding.severity == "minor"
    assert "the program's own code" in finding.sentence
    assert finding.saving == (1.0, 1.0)


def test_it_never_gives_the_verdict(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, start=20 * SECOND)
    assert diagnosis().verdict.id == "compute-bound"


def test_importing_torch_is_not_the_programs_fault(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    loop.span("import", 20 * SECOND, "torch")
    for _ in range(100):
        loop.compute(40, 50, 10)
    assert isinstance(ask(rule), Clear)


def test_a_short_start_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, start=SECOND)
    assert isinstance(ask(rule), Clear)


def test_a_start_before_long_training_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, start=6 * SECOND, steps=1000)
    assert isinstance(ask(rule), Clear)


def test_without_steps_it_is_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    loop.span("import", 20 * SECOND, "torch")
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["slow_start"]
    assert outcome.state == "not checked"
