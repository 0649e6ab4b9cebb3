from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.loop import validation_share as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule


def write(loop: Any, batches: int, flags: int = 0, every: int = 10, steps: int = 60) -> None:
    for step in range(steps):
        loop.compute()
        if step % every == every - 1:
            loop.span("loader_start", 0.1, "loader/2", 0, 50)
            for _ in range(batches):
                loop.span("data", 1, "loader/2", 32, 50)
                loop.span("forward", 4, "Net", flags, 51)
            loop.span("data_end", 0.1, "loader/2", 0, 50)


def test_a_large_validation_is_found_at_its_busiest_line(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, batches=20)
    finding = find(rule)
    assert finding.share == pytest.approx(0.5, abs=0.05)
    assert str(finding.location) == "train.py:51"
    best, worst = finding.saving
    assert best == pytest.approx(1 - 0.75 * finding.share)
    assert worst == pytest.approx(1 - 0.5 * finding.share)
    assert not any("inference_mode" in option.edit for option in finding.options)


def test_gradients_in_a_validation_are_reported(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, batches=20, flags=2)
    *_, inference = find(rule).options
    assert "train.py:51 in torch.inference_mode()" in inference.edit
    assert 0 < inference.saving[0] < 1 == inference.saving[1]


def test_hardly_any_gradients_in_a_validation_are_not_worth_a_word(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    for step in range(60):
        loop.compute()
        if step % 10 == 9:
            loop.span("loader_start", 0.1, "loader/2", 0, 50)
            for batch in range(20):
                loop.span("data", 1, "loader/2", 32, 50)
                loop.span("forward", 0.1 if batch == 7 else 4, "Net", 2 if batch == 7 else 0, 51)
            loop.span("data_end", 0.1, "loader/2", 0, 50)
    assert not any("inference_mode" in option.edit for option in find(rule).options)


def test_a_validation_that_mostly_starts_its_workers_is_about_the_workers(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    for step in range(60):
        loop.compute()
        if step % 10 == 9:
            loop.span("loader_start", 60, "loader/2", 0, 50)
            loop.span("data", 1, "loader/2", 32, 50)
            loop.span("forward", 4, "Net", 0, 51)
            loop.span("data_end", 20, "loader/2", 0, 50)
    finding = find(rule)
    assert "starts and ends the workers of the DataLoader for validation, which takes" in finding.sentence
    assert "persistent_workers=True" in finding.advice
    assert finding.verdict == "data-bound"
    assert finding.share == pytest.approx(6 * 80 / (6 * 85 + 60 * 10), abs=0.03)
    # Six validations: the workers start once.
    assert finding.saving[0] == pytest.approx(1 - 5 / 6 * finding.share, abs=0.01)


def test_a_light_validation_is_a_choice(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, batches=2)
    assert isinstance(ask(rule), Clear)


def test_too_few_steps_are_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, batches=20, steps=10)
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["validation_share"]
    assert outcome.state == "not checked"
