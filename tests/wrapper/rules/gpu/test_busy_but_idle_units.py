from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.gpu import busy_but_idle_units as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule

GIB = 1 << 30


def card(make_loop: Callable[..., Any], utilization: float, used_gib: float = 10, **units: float) -> None:
    """Write a loop beside a GPU of 80 GiB."""
    loop = make_loop(**{"model/Net/device": "cuda:0"})
    for _ in range(40):
        loop.compute()
    loop.monitor().fact("gpu/0/memory_total_bytes", 80 * GIB)
    loop.sample("gpu/0", "utilization_share", utilization)
    loop.sample("gpu/0", "memory_used_bytes", used_gib * GIB)
    for unit, value in units.items():
        loop.sample("gpu/0", f"{unit}_activity_share", value)


@pytest.mark.parametrize(
    "units", [{"sm": 0.3}, {"sm": 0.9, "tensor": 0.05, "dram": 0.2}], ids=["few multiprocessors", "no unit"]
)
def test_a_gpu_that_only_looks_busy_is_a_note(
    make_loop: Callable[..., Any], find: Callable[[Rule], Finding], units: dict[str, float]
) -> None:
    card(make_loop, 0.97, **units)
    finding = find(rule)
    assert finding.informational
    assert finding.severity == "note"
    assert "shows 97 % utilization" in finding.title


def test_full_memory_beside_little_work_is_said_to_be_fine(
    make_loop: Callable[..., Any], find: Callable[[Rule], Finding]
) -> None:
    card(make_loop, 0.3, used_gib=76)
    finding = find(rule)
    assert finding.title.endswith("memory is 95 % full while it is busy 30 % of the time, which is normal.")
    assert finding.informational


def test_a_gpu_whose_units_work_is_clear(
    make_loop: Callable[..., Any], ask: Callable[[Rule], Answer]
) -> None:
    card(make_loop, 0.97, sm=0.9, tensor=0.4, dram=0.5)
    assert isinstance(ask(rule), Clear)


def test_a_gpu_that_does_not_report_it_is_not_checked(
    make_loop: Callable[..., Any], ask: Callable[[Rule], Answer]
) -> None:
    card(make_loop, 0.97)
    assert isinstance(ask(rule), NotChecked)
