from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.measures.recorder import detail_cost
from perfwrap.rules.model import Answer, Clear, Finding, Rule
from perfwrap.rules.recorder import profiler_cost as rule


def test_costs_above_the_budget_are_found(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for _ in range(40):
        loop.compute()
        loop.span("perfwrap", 1, "flush")
    finding = find(rule)
    assert finding.share == pytest.approx(1 / 11, abs=0.01)
    assert finding.confidence == "inferred"


def test_costs_within_the_budget_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for _ in range(40):
        loop.compute()
        loop.span("perfwrap", 0.05, "flush")
    assert isinstance(ask(rule), Clear)


def test_short_steps_have_a_larger_budget(
    loop: Any, ask: Callable[[Rule], Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A machine on which a span costs little: some 3 % of these steps, above the budget of longer ones.
    monkeypatch.setattr(detail_cost, "RECORD_NS", 700)
    for _ in range(40):
        loop.compute(0.15, 0.2, 0.04)
        loop.span("perfwrap", 0.01, "flush")
    assert isinstance(ask(rule), Clear)


def test_too_few_steps_are_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    for _ in range(8):
        loop.compute()
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["profiler_cost"]
    assert outcome.state == "not checked"


@pytest.mark.parametrize("options", [{"inspect": True}, {"trial": {"steps": 30}}])
def test_detail_that_was_asked_for_is_clear(
    loop: Any, run: Any, ask: Callable[[Rule], Answer], options: dict[str, object]
) -> None:
    run.folder.write_manifest({"command": ["python", "train.py"], "options": options})
    for _ in range(40):
        loop.compute()
        loop.span("perfwrap", 1, "flush")
    answer = ask(rule)
    assert isinstance(answer, Clear)
    assert "as asked for" in answer.why
