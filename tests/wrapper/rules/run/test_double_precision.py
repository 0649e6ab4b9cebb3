from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule
from perfwrap.rules.run import double_precision as rule


def write(loop: Any, types: str, device: str = "cpu", python: float = 0, steps: int = 40) -> None:
    """Write steps of 10 ms of work and some of the program's own code."""
    loop.journal.fact("model/Net/device", device)
    loop.journal.fact("model/Net/dtypes", types)
    for _ in range(steps):
        loop.compute()
        loop.python(python)


def test_a_model_in_double_precision_is_found(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, "torch.float64 1200", python=10)
    finding = find(rule)
    assert finding.share == pytest.approx(0.5 * 0.425, abs=0.02)
    assert finding.saving == pytest.approx((1 - 0.5 * 0.6, 1 - 0.5 * 0.25), abs=0.02)
    assert "Net" in finding.title


@pytest.mark.parametrize(
    "types", ["torch.float32 1200", "torch.float32 1000, torch.float64 200", "torch.bfloat16 9"]
)
def test_other_models_are_clear(loop: Any, ask: Callable[[Rule], Answer], types: str) -> None:
    write(loop, types)
    assert isinstance(ask(rule), Clear)


def test_little_work_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, "torch.float64 1200", python=200)
    assert isinstance(ask(rule), Clear)


def test_steps_in_which_calls_cost_more_than_numbers_are_clear(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    loop.journal.fact("model/Net/dtypes", "torch.float64 1200")
    for _ in range(40):
        loop.compute(0.5, 0.6, 0.1)
    assert isinstance(ask(rule), Clear)


def test_a_loop_without_a_model_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for _ in range(40):
        loop.compute()
    assert isinstance(ask(rule), Clear)


def test_on_a_gpu_the_hosts_time_does_not_count(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, "torch.float64 1200", device="cuda:0")
    assert isinstance(ask(rule), NotChecked)


def test_the_verdict_is_not_healthy(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, "torch.float64 1200")
    found = diagnosis()
    assert found.findings[0].rule == "double_precision"
    assert "double precision" in found.verdict.sentence
