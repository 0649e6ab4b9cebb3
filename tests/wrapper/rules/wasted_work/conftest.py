"""Loops whose steps a test draws operation by operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.rules.model import Outcome, Rule, rule_id
from perfwrap.timeline.coverage import DATAFLOW

from tests.wrapper.drawn_windows import Draw, draw

STEPS = 40


@pytest.fixture
def inspect(loop: Any) -> Callable[[Draw], None]:
    """Return a function that writes a loop whose steps are as drawn, and dataflow windows of it."""

    def write(body: Draw) -> None:
        ms = draw(body, windows=1)[0].bare[0] / 1e6
        for _ in range(STEPS):
            loop.compute(0.5 * ms, 0.4 * ms, 0.1 * ms)
        loop.run.step = body

    return write


@pytest.fixture
def why(loop: Any) -> Callable[..., str]:
    """Return a function that says why a rule is not checked in a run without windows; ``note`` is the recorder's."""

    def ask(rule: Rule, note: str = "") -> str:
        if note:
            loop.journal.describe("COVERAGE", DATAFLOW, loop.journal.text(note), duration=1)
        for _ in range(STEPS):
            loop.compute()
        (found,) = [one for one in diagnose(loop.run.read()).outcomes if one.rule == rule_id(rule)]
        assert isinstance(found, Outcome)
        assert found.state == "not checked"
        return found.why

    return ask
