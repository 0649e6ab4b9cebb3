from __future__ import annotations

from typing import Any

import pytest
from perfwrap.rules import allocator_retries as rule
from perfwrap.rules.model import Clear


@pytest.mark.parametrize("call", ["cudaMalloc", "cudaFree", "hipFree", "cudaHostAlloc"])
def test_asking_for_memory_in_each_step_is_found(gpu_loop: Any, call: str) -> None:
    for _ in range(10):
        gpu_loop.step(kernel=20, at_work=call)
    finding = gpu_loop.find(rule)
    assert finding.share == pytest.approx(0.75, abs=0.03)
    assert finding.verdict == "memory-bound"
    assert f"100 calls of {call}" in finding.evidence[0]


def test_the_allocator_filling_up_once_is_clear(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step()
    gpu_loop.recording.host(gpu_loop.start, 5_000, "cudaMalloc")
    gpu_loop.start += 5_000
    gpu_loop.step()
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_asking_while_the_gpu_works_is_clear(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step(kernel=99, at_work="cudaMalloc")
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_without_kernels_it_is_not_checked(gpu_loop: Any) -> None:
    gpu_loop.recording.host(0, 10, "optimizer", "optimizer")
    assert gpu_loop.outcome(rule).state == "not checked"
