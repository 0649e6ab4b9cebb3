from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.loop import evaluation_with_grad as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule

GRAD = 2


def write(loop: Any, flags: int, batches: int = 4, every: int = 10, steps: int = 60) -> None:
    for step in range(steps):
        loop.compute()
        if step % every == every - 1:
            loop.span("loader_start", 0.1, "loader/2", 0, 50)
            for _ in range(batches):
                loop.span("data", 1, "loader/2", 32, 50)
                loop.span("forward", 4, "Net", flags, 51)
            loop.span("data_end", 0.1, "loader/2", 0, 50)


def test_gradients_in_a_validation_are_found_at_the_forward_pass(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, GRAD)
    finding = find(rule)
    assert finding.share == pytest.approx(0.4 * 16 / 120, abs=0.01)
    assert str(finding.location) == "train.py:51"
    assert finding.saving == pytest.approx((1 - finding.share, 1.0))
    assert "inference_mode" in finding.advice


def test_where_training_runs_the_same_line_the_evaluation_is_wrapped_around_it(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    for step in range(60):
        loop.span("forward", 4, "Net", 3, 51)
        loop.span("backward", 5, line=23)
        loop.span("optimizer", 1, "SGD#1", line=24)
        if step % 10 == 9:
            loop.span("loader_start", 0.1, "loader/2", 0, 50)
            for _ in range(4):
                loop.span("data", 1, "loader/2", 32, 50)
                loop.span("forward", 4, "Net", GRAD, 51)
            loop.span("data_end", 0.1, "loader/2", 0, 50)
    assert "training runs that line too" in find(rule).advice


def write_both(loop: Any, with_grad: float, without: float) -> None:
    """Write validations of which one line runs with gradients and another without, so many milliseconds each."""
    for step in range(60):
        loop.compute()
        if step % 10 == 9:
            loop.span("loader_start", 0.1, "loader/2", 0, 50)
            for _ in range(4):
                loop.span("data", 1, "loader/2", 32, 50)
                loop.span("forward", without, "Net", 0, 51)
                loop.span("forward", with_grad, "Probe", GRAD, 53)
            loop.span("data_end", 0.1, "loader/2", 0, 50)


def test_a_line_without_gradients_is_not_blamed_for_another(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write_both(loop, with_grad=3, without=4)
    finding = find(rule)
    assert str(finding.location) == "train.py:53"
    assert finding.share == pytest.approx(0.4 * 12 / 132, abs=0.01)


def test_short_passes_with_gradients_among_long_ones_without_are_clear(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    write_both(loop, with_grad=0.1, without=4)
    assert isinstance(ask(rule), Clear)


def test_without_gradients_it_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, 0)
    assert isinstance(ask(rule), Clear)


def test_a_light_validation_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, GRAD, batches=1)
    assert isinstance(ask(rule), Clear)


def test_without_validation_it_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for _ in range(40):
        loop.compute()
    assert isinstance(ask(rule), Clear)


def test_a_large_validation_reports_it_itself(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, GRAD, batches=20)
    found = [finding.rule for finding in diagnosis().findings]
    assert "validation_share" in found
    assert "evaluation_with_grad" not in found


def test_too_few_steps_are_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, GRAD, steps=10)
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["evaluation_with_grad"]
    assert outcome.state == "not checked"
