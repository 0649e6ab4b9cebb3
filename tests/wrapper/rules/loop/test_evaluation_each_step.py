from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.journal_format import GRAD, TRAINING
from perfwrap.rules.loop import evaluation_each_step as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule


def write(
    loop: Any,
    evaluates: float = 4,
    *,
    model: str = "Net",
    value: int = 0,
    read: str = "Tensor.item",
    every: int = 1,
    read_first: bool = True,
) -> None:
    """Write 40 steps that train for 10 ms and then evaluate."""
    for number in range(40):
        loop.span("forward", 4, "Net", TRAINING | GRAD, 21)
        loop.span("backward", 5, line=23)
        loop.span("optimizer", 1, "SGD#1", line=24)
        if number % every == 0:
            loop.span("forward", evaluates, model, value, 35)
            if read_first:
                loop.span("sync", 0.01, read, 0, 36)


def test_an_evaluation_in_each_step_is_found_at_its_line(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop)
    finding = find(rule)
    assert finding.share == pytest.approx(4 / 14, abs=0.01)
    assert str(finding.location) == "train.py:35"
    assert finding.saving == pytest.approx((1 - 0.9 * finding.share, 1.0))
    assert "only every 10 steps" in finding.advice


@pytest.mark.parametrize(
    "options",
    [
        {"model": "Teacher"},
        {"value": TRAINING},
        {"value": GRAD},
        {"read": "Tensor.numpy"},
        {"read_first": False},
        {"every": 4},
        {"evaluates": 0.5},
    ],
    ids=[
        "another model",
        "in training mode",
        "with gradients",
        "a policy that acts",
        "a teacher: nothing is read",
        "in few steps",
        "a small part of the step",
    ],
)
def test_other_forward_passes_are_clear(
    loop: Any, ask: Callable[[Rule], Answer], options: dict[str, Any]
) -> None:
    write(loop, **options)
    assert isinstance(ask(rule), Clear)
