from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.health import gpu_memory_growth as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule

MIB = 1 << 20
GIB = 1 << 30


def train(loop: Any, mib: Callable[[int], float], steps: int = 120) -> None:
    """Write steps of 100 ms, after each of which the allocator is looked at."""
    loop.journal.fact("cuda_device", 0)
    for step in range(steps):
        loop.compute(forward=60, backward=35, optimizer=5)
        loop.journal.sample("gpu/0", "allocated_bytes", mib(step) * MIB)


def test_memory_that_grows_from_step_to_step_is_found_with_its_line(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    for key, value in (
        ("line", "train.py\x1f23\x1fmain"),
        ("kind", "backward"),
        ("old", 12),
        ("alive", 12),
    ):
        loop.journal.fact(f"live_graph/1/{key}", value)
    train(loop, lambda step: 1000 + 2 * step)
    loop.monitor().fact("gpu/0/memory_total_bytes", 80 * GIB)
    finding = find(rule)
    assert "70 GiB per hour: graphs made at train.py:23" in finding.sentence
    assert str(finding.location) == "train.py:23"
    assert finding.severity == "major"
    assert any("the free GPU memory lasts for" in words for words in finding.evidence)


@pytest.mark.parametrize(
    "mib",
    [
        pytest.param(lambda step: 1000.0 + step % 2, id="flat"),
        pytest.param(lambda step: 1000 + 300 * (step % 10 == 0), id="an evaluation now and then"),
        pytest.param(lambda step: 1000 + min(200, 20 * step), id="optimizer state at first"),
    ],
)
def test_memory_that_does_not_go_on_growing_is_clear(
    loop: Any, ask: Callable[[Rule], Answer], mib: Callable[[int], float]
) -> None:
    train(loop, mib)
    assert isinstance(ask(rule), Clear)


def test_without_a_gpu_it_is_not_checked(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for _ in range(30):
        loop.compute()
    assert isinstance(ask(rule), NotChecked)


def test_counters_that_two_ranks_share_are_not_checked(run: Any, ask: Callable[[Rule], Answer]) -> None:
    for rank in range(2):
        journal = run.journal(pid=100 + rank, rank=rank, cuda_device=0)
        for _ in range(30):
            journal.step()
            journal.sample("gpu/0", "allocated_bytes", 1e9 + journal.now)
    assert isinstance(ask(rule), NotChecked)
