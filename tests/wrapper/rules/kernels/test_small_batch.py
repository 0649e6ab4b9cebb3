from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.kernels import small_batch as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule

GIB = 1 << 30


def card(make_loop: Callable[..., Any], utilization: float, used_gib: float, **units: float) -> Any:
    """Write a loop beside a GPU of 80 GiB."""
    loop = make_loop(**{"model/Net/device": "cuda:0", "loader/1/batch_size": 8})
    for _ in range(40):
        loop.compute()
    loop.monitor().fact("gpu/0/name", "NVIDIA H100 80GB HBM3")
    loop.monitor().fact("gpu/0/memory_total_bytes", 80 * GIB)
    loop.sample("gpu/0", "utilization_share", utilization)
    loop.sample("gpu/0", "memory_used_bytes", used_gib * GIB)
    for unit, value in units.items():
        loop.sample("gpu/0", f"{unit}_activity_share", value)
    return loop


def test_empty_multiprocessors_beside_free_memory_are_found(
    make_loop: Callable[..., Any], find: Callable[[Rule], Finding]
) -> None:
    card(make_loop, 0.98, 10, sm=0.28)
    finding = find(rule)
    assert finding.share == pytest.approx(0.35)
    assert finding.saving == (pytest.approx(0.3), pytest.approx(0.65))
    assert "88 % of its memory is free" in finding.title
    assert "batch size is 8" in finding.evidence[1]


@pytest.mark.parametrize(("utilization", "used", "sm"), [(0.98, 60, 0.28), (0.98, 10, 0.8), (0.3, 10, 0.1)])
def test_full_memory_full_units_and_an_idle_gpu_are_clear(
    make_loop: Callable[..., Any], ask: Callable[[Rule], Answer], utilization: float, used: float, sm: float
) -> None:
    card(make_loop, utilization, used, sm=sm)
    assert isinstance(ask(rule), Clear)


def test_a_gpu_that_does_not_report_it_is_not_checked(
    make_loop: Callable[..., Any], ask: Callable[[Rule], Answer]
) -> None:
    card(make_loop, 0.98, 10)
    answer = ask(rule)
    assert isinstance(answer, NotChecked)
    assert "Hopper" in answer.why


def test_a_run_on_the_cpu_gets_no_message_about_a_gpu(
    make_loop: Callable[..., Any], diagnosis: Callable[[], Any]
) -> None:
    loop = make_loop(**{"model/Net/device": "cpu"})
    for _ in range(40):
        loop.compute()
    loop.sample("gpu/0", "utilization_share", 0.98)
    outcome = next(outcome for outcome in diagnosis().outcomes if outcome.rule == "small_batch")
    assert (outcome.state, outcome.why) == ("not checked", "The model ran on the CPU.")
