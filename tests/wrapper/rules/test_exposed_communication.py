from __future__ import annotations

from typing import Any

import pytest
from perfwrap.rules import exposed_communication as rule
from perfwrap.rules.model import Clear

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def test_collectives_that_nothing_is_computed_beside_are_found(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step(kernel=60, beside=ALL_REDUCE)
    finding = gpu_loop.find(rule)
    assert finding.share == pytest.approx(0.4, abs=0.01)
    assert finding.verdict == "communication-bound"
    assert "100 collectives took 4 ms, 4 ms of it alone" in finding.evidence[0]


def test_hidden_collectives_are_clear(gpu_loop: Any) -> None:
    for _ in range(10):
        start = gpu_loop.start
        gpu_loop.step(kernel=99)
        gpu_loop.recording.work(start, 500, ALL_REDUCE, stream=9, launched=start - 9)
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_without_collectives_it_is_clear(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step(kernel=60)
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_without_kernels_it_is_not_checked(gpu_loop: Any) -> None:
    gpu_loop.recording.host(0, 10, "optimizer", "optimizer")
    assert gpu_loop.outcome(rule).state == "not checked"


def test_what_stands_between_the_backward_pass_and_the_optimizer_is_said(gpu_loop: Any) -> None:
    recording = gpu_loop.recording
    for number in range(20):
        start = 1_000 * number
        recording.host(start, 100, "backward", "backward")
        recording.host(start + 120, 100, "optimizer", "optimizer")
        for at in range(3):
            recording.work(start + 150 + 100 * at, 100, "gemm", launched=start + 10 + at)
        # 200 of its 300 us come after the last kernel of the backward pass.
        recording.work(start + 350, 300, ALL_REDUCE, stream=9, launched=start + 20)
        recording.work(start + 650, 50, "adam", launched=start + 130)
    finding = gpu_loop.find(rule)
    assert finding.evidence[1].startswith(">99 %") or finding.evidence[1].startswith("100 %")
    assert "between the end of the backward pass and the optimizer" in finding.evidence[1]
