from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.rules.model import Clear
from perfwrap.rules.ranks import exposed_communication
from perfwrap.rules.ranks import small_collectives as rule
from perfwrap.rules.transfers import gpu_waits_for_host, launch_bound

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "ampere_bf16_s16816gemm_bf16_128x128"
SPACED = 100


def steps(
    recording: Any, collectives: int = 40, took: float = 20, beside: bool = False, count: int = 3
) -> None:
    """Write steps of 1 ms of computation and then collectives of their own, one every 100 µs."""
    start, spaced = 0.0, max(SPACED, took + 10)
    for _ in range(count):
        length = 1_000 + spaced * collectives
        recording.step(start, length)
        for number in range(20):
            recording.work(start + 50 * number, 50, GEMM, launched=start + 50 * number - 5)
        for number in range(collectives):
            at = start + 1_000 + spaced * number
            recording.host(at - 75, 70, "op", name="c10d::allreduce_")
            recording.work(at, took, ALL_REDUCE, launched=at - 10, stream=20)
            if beside:
                recording.work(at, spaced, GEMM, launched=at - 5, stream=9)
        start += length


def test_many_small_collectives_are_told_from_launches(gpu_loop: Any) -> None:
    steps(gpu_loop.recording)
    finding = gpu_loop.find(rule)
    assert finding.share == pytest.approx(0.8, abs=0.05)
    assert finding.verdict == "communication-bound"
    assert "40 small collectives per step" in finding.title
    assert "bucket_cap_mb" in finding.advice
    assert any("120 collectives with a median of 20 µs" in text for text in finding.evidence)
    assert isinstance(gpu_loop.ask(launch_bound), Clear)
    assert isinstance(gpu_loop.ask(exposed_communication), Clear)
    assert isinstance(gpu_loop.ask(gpu_waits_for_host), Clear)


def test_the_verdict_is_that_of_communication(gpu_loop: Any) -> None:
    steps(gpu_loop.recording)
    timeline = replace(gpu_loop.recording.build(), run={"imported": [{"file": "a.json", "format": "kineto"}]})
    verdict = diagnose(timeline).verdict
    assert (verdict.id, verdict.share) == ("communication-bound", pytest.approx(0.8, abs=0.05))


def test_small_collectives_that_are_hidden_are_clear(gpu_loop: Any) -> None:
    steps(gpu_loop.recording, beside=True)
    assert isinstance(gpu_loop.ask(rule), Clear)


@pytest.mark.parametrize(("collectives", "took"), [(8, 20), (40, 400)], ids=["few", "large"])
def test_few_or_large_collectives_are_left_to_the_rule_about_overlap(
    gpu_loop: Any, collectives: int, took: float
) -> None:
    steps(gpu_loop.recording, collectives=collectives, took=took)
    assert isinstance(gpu_loop.ask(rule), Clear)
    assert isinstance(gpu_loop.ask(exposed_communication), list)


def test_without_collectives_it_is_clear(gpu_loop: Any) -> None:
    steps(gpu_loop.recording, collectives=0)
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_without_kernels_it_is_not_checked(gpu_loop: Any) -> None:
    gpu_loop.recording.host(0, 10, "optimizer", "optimizer")
    assert gpu_loop.outcome(rule).state == "not checked"
