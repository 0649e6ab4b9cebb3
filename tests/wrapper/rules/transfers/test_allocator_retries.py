from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule
from perfwrap.rules.transfers import allocator_retries as rule


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


def counted(make_loop: Callable[..., Any], values: Sequence[float]) -> None:
    """Write a loop on a GPU in which PyTorch's own count of retries goes like that, evenly."""
    loop = make_loop(**{"model/Net/device": "cuda:0"})
    loop.journal.sample("gpu/0", "alloc_retries_count", values[0])
    for value in values[1:]:
        for _ in range(20):
            loop.compute()
        loop.journal.sample("gpu/0", "alloc_retries_count", value)


def test_pytorchs_own_count_of_retries_is_enough(
    make_loop: Callable[..., Any], find: Callable[[Rule], Finding]
) -> None:
    counted(make_loop, [0, 0, 3, 7])
    finding = find(rule)
    assert "7 times in the steady loop" in finding.title
    assert finding.health
    assert finding.share == 0


def test_retries_before_the_loop_do_not_count(
    make_loop: Callable[..., Any], ask: Callable[[Rule], Answer]
) -> None:
    counted(make_loop, [9, 9, 9, 10])
    assert isinstance(ask(rule), NotChecked)


def test_a_run_on_the_cpu_gets_no_message_about_a_gpu(loop: Any, diagnosis: Callable[[], Any]) -> None:
    loop.journal.fact("model/Net/device", "cpu")
    for _ in range(40):
        loop.compute()
    outcome = next(outcome for outcome in diagnosis().outcomes if outcome.rule == "allocator_retries")
    assert (outcome.state, outcome.why) == ("not checked", "The model ran on the CPU.")
