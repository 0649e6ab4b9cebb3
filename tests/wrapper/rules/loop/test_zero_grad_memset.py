from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.loop import zero_grad_memset as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule


def write(loop: Any, ms: float, to_none: object, device: str = "cpu", steps: int = 40) -> None:
    loop.journal.fact("model/Net/device", device)
    loop.journal.fact("zero_grad/1/line", "train.py\x1f25\x1fmain")
    loop.journal.fact("zero_grad/1/set_to_none", to_none)
    for _ in range(steps):
        loop.compute()
        loop.span("zero_grad", ms, "Optimizer.zero_grad", line=25)


def test_writing_zeros_is_found_at_its_line(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, ms=10, to_none=False)
    finding = find(rule)
    assert finding.share == pytest.approx(0.5, abs=0.02)
    assert str(finding.location) == "train.py:25"
    assert finding.experiment == "set-to-none"
    assert finding.saving == pytest.approx((1 - finding.share, 1 - finding.share / 2))


def test_on_a_gpu_it_may_cost_nothing(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, ms=10, to_none=False, device="cuda:0")
    assert find(rule).saving[1] == 1.0


def test_letting_gradients_go_is_clear_however_long_it_takes(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    write(loop, ms=10, to_none=True)
    assert isinstance(ask(rule), Clear)


def test_a_few_zeros_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, ms=0.1, to_none=False)
    assert isinstance(ask(rule), Clear)


def test_no_time_is_sold_twice(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, ms=10, to_none=False)
    found = {finding.rule: finding.share for finding in diagnosis().findings}
    assert found["zero_grad_memset"] == pytest.approx(0.5, abs=0.02)
    assert sum(found.values()) <= 1.0


def test_too_few_steps_are_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, ms=10, to_none=False, steps=10)
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["zero_grad_memset"]
    assert outcome.state == "not checked"
