from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.host import swapping as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule

MIB = 1 << 20


def write(
    loop: Any, swapped: float | None, stalled: float | None = None, available: float | None = MIB
) -> None:
    for _ in range(40):
        loop.compute()
    for metric, value in {
        "cpu_cores_busy": 1.0,
        "swap_in_bytes_per_s": swapped,
        "memory_stall_share": stalled,
        "memory_available_bytes": available,
        "swap_used_bytes": swapped and 100 * MIB,
    }.items():
        if value is not None:
            loop.sample("host", metric, value)


def test_swapping_costs_what_stood_still_for_want_of_memory(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, swapped=20 * MIB, stalled=0.25)
    finding = find(rule)
    assert finding.share == pytest.approx(0.25)
    assert finding.saving == pytest.approx((0.75, 1.0))
    assert "20 MiB" in finding.sentence
    assert finding.health


def test_without_pressure_no_cost_is_claimed(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, swapped=20 * MIB)
    finding = find(rule)
    assert finding.share == 0
    assert finding.saving == (1.0, 1.0)
    assert "the cost is unknown" in finding.sentence


@pytest.mark.parametrize("swapped", [0.0, 1000.0, None])
def test_a_few_pages_and_no_swap_are_clear(
    loop: Any, ask: Callable[[Rule], Answer], swapped: float | None
) -> None:
    write(loop, swapped=swapped)
    assert isinstance(ask(rule), Clear)


def test_memory_that_was_not_sampled_is_not_checked(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, swapped=None, available=None)
    assert isinstance(ask(rule), NotChecked)
