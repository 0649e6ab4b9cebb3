from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.gpu import shared_gpu as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule

GIB = 1 << 30


@pytest.fixture
def loop_on_gpu(make_loop: Callable[..., Any]) -> Any:
    loop = make_loop(**{"model/Net/device": "cuda:0"})
    for _ in range(40):
        loop.compute()
    loop.monitor().fact("gpu/0/memory_total_bytes", 80 * GIB)
    loop.sample("gpu/0", "utilization_share", 0.9)
    return loop


def test_others_with_memory_are_found_by_name(loop_on_gpu: Any, find: Callable[[Rule], Finding]) -> None:
    loop_on_gpu.sample("gpu/0", "other_processes", 1)
    loop_on_gpu.sample("gpu/0", "other_memory_used_bytes", 20 * GIB)
    loop_on_gpu.monitor().fact("gpu/0/process/4242/owner", "other")
    loop_on_gpu.monitor().fact("gpu/0/process/4242/program", "python3")
    finding = find(rule)
    assert finding.health
    assert "(python3), which can make steps longer" in finding.sentence
    assert "20 GiB" in finding.evidence[1]


@pytest.mark.parametrize(("processes", "memory"), [(0, 0), (1, GIB // 10), (0.01, 20 * GIB)])
def test_no_process_a_desktop_and_a_moment_are_clear(
    loop_on_gpu: Any, ask: Callable[[Rule], Answer], processes: float, memory: float
) -> None:
    loop_on_gpu.sample("gpu/0", "other_processes", processes)
    loop_on_gpu.sample("gpu/0", "other_memory_used_bytes", memory)
    assert isinstance(ask(rule), Clear)


def test_with_unknown_owners_it_is_not_checked(loop_on_gpu: Any, ask: Callable[[Rule], Answer]) -> None:
    assert isinstance(ask(rule), NotChecked)
