from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfwrap.rules.health import skipped_steps as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule


def write(loop: Any, skips: Callable[[int], bool], steps: int = 60, value: int | None = None) -> None:
    for step in range(steps):
        loop.compute(optimizer=0)
        skipped = skips(step)
        name = "GradScaler.step skipped" if skipped else "GradScaler.step"
        known = int(skipped) if value is None else value
        with loop.journal.inside("scaler_step", name, known, "train.py:25:main"):
            loop.python(1)


def test_steps_that_are_skipped_again_and_again_are_found_at_the_scalers_line(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    loop.journal.fact("scaler/growth_interval", 4)
    write(loop, lambda step: step % 5 == 4)
    finding = find(rule)
    assert finding.share == 0.2
    assert str(finding.location) == "train.py:25"
    assert finding.health
    assert "12 of 60 steps" in finding.evidence[0]
    assert "growth_interval from 4" in finding.advice


def test_all_steps_skipped_is_another_problem(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, lambda _: True)
    finding = find(rule)
    assert finding.share == 1.0
    assert "at any scale" in finding.advice


def test_the_skips_with_which_a_scaler_finds_its_scale_do_not_count(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    write(loop, lambda step: step < 6)
    assert isinstance(ask(rule), Clear)


def test_thinned_steps_count_too(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, lambda _: False, steps=40)
    begun = loop.journal.now
    loop.journal.describe("THIN", value=0)
    for name, count in (("GradScaler.step", 150), ("GradScaler.step skipped", 50)):
        loop.journal.sum("scaler_step", begun, count, count * 1000, name, "train.py:25:main")
    loop.python(2000)
    loop.journal.describe("THIN", value=1)
    write(loop, lambda _: False, steps=10)
    assert find(rule).share == 50 / 250


def test_without_a_scaler_it_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for _ in range(30):
        loop.compute()
    assert isinstance(ask(rule), Clear)


def test_what_a_fused_optimizer_decides_on_the_gpu_is_not_checked(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    write(loop, lambda _: False, value=-1)
    assert isinstance(ask(rule), NotChecked)
