from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.host_sync import explicit_synchronize as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule


def write(loop: Any, blocked: float, device: str = "cuda:0", name: str = "torch.cuda.synchronize") -> None:
    loop.journal.fact("model/Net/device", device)
    for _ in range(40):
        loop.compute()
        loop.span("sync", blocked, name, 1 if device != "cpu" else 0, 30)


def test_a_wait_for_a_gpu_that_idles_is_found_at_its_line(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, blocked=10)
    loop.sample("gpu/0", "utilization_share", 0.7)
    finding = find(rule)
    assert finding.share == pytest.approx(0.3, abs=0.01)
    assert finding.saving == pytest.approx((0.7, 1.0), abs=0.01)
    assert str(finding.location) == "train.py:30"


def test_waiting_for_a_busy_gpu_costs_nothing(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, blocked=10)
    loop.sample("gpu/0", "utilization_share", 0.99)
    assert isinstance(ask(rule), Clear)


def test_reads_of_values_are_another_rules_business(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, blocked=10, name="Tensor.item")
    loop.sample("gpu/0", "utilization_share", 0.5)
    assert isinstance(ask(rule), Clear)


def test_one_line_is_reported_once(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, blocked=10)
    loop.sample("gpu/0", "utilization_share", 0.7)
    found = [finding.rule for finding in diagnosis().findings]
    assert "explicit_synchronize" in found
    assert "host_sync_in_step" not in found


def test_without_samples_of_the_gpu_it_is_not_checked(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, blocked=10)
    answer = ask(rule)
    assert isinstance(answer, NotChecked)
    assert "train.py:30" in answer.why


def test_on_a_cpu_nothing_is_said_of_a_gpu(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, blocked=10, device="cpu", name="Tensor.item")
    assert ask(rule) == NotChecked("The model ran on the CPU.")
