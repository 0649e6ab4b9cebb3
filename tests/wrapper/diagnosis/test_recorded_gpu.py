"""Where kernels were recorded, the verdict says whether the GPU was busy, with what, and why it was idle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis

CONV = "sm80_xmma_fprop_implicit_gemm_tf32f32"


def imported(recording: Any) -> Diagnosis:
    """Return the diagnosis of the recording as an imported file."""
    return diagnose(replace(recording.build(), run={"imported": [{"file": "a.json", "format": "kineto"}]}))


def kernels(recording: Any, count: int, took: float, every: float = 100, launched: bool = True) -> None:
    """Write kernels at a regular distance; the host works in the framework between them."""
    for number in range(count):
        at = every * number
        recording.work(at, took, CONV, launched=at - 5 if launched else None)
        recording.host(at + 1, every - 8, "op", name="aten::conv2d")


@pytest.mark.parametrize("busy", [96, 87, 72])
def test_a_busy_gpu_without_steps_is_compute_bound_with_its_kernels(recording: Any, busy: int) -> None:
    kernels(recording, 100, busy)
    diagnosis = imported(recording)
    verdict = diagnosis.verdict
    assert verdict.id in ("compute-bound", "launch-bound")
    assert (verdict.id == "compute-bound") is (busy >= 80)
    if busy >= 80:
        assert verdict.share == pytest.approx(busy / 100, abs=0.02)
        assert "convolutions 100 %" in verdict.sentence


def test_several_small_causes_of_idle_time_leave_a_busy_gpu_compute_bound(recording: Any) -> None:
    for number in range(100):
        at = 100.0 * number
        recording.work(at, 75, CONV, launched=at - 3)
        recording.host(at + 76, 7, "op", name="aten::conv2d")
        recording.host(at + 84, 7, "cudaStreamSynchronize")
        recording.host(at + 92, 4, "cudaMemcpyAsync")
    verdict = imported(recording).verdict
    assert verdict.id in ("compute-bound", "sync-bound")
    assert "GPU" in verdict.sentence


def test_a_dozen_kernels_are_enough_to_say_that_a_gpu_is_idle(recording: Any) -> None:
    kernels(recording, 12, 5)
    verdict = imported(recording).verdict
    assert (verdict.id, verdict.share) == ("gpu-idle", pytest.approx(0.95, abs=0.01))
    assert "while the host launches kernels" in verdict.sentence


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "no kernel was recorded on gpu/0, only 1 copy"), (4, "only 4 kernels of gpu/0 were recorded")],
)
def test_too_few_kernels_give_no_verdict_but_say_so(recording: Any, count: int, words: str) -> None:
    recording.copy(0, 50, launched=-10)
    kernels(recording, count, 50)
    verdict = imported(recording).verdict
    assert verdict.id == "unknown"
    assert words in verdict.sentence


def test_kernels_without_any_thread_are_judged_too(recording: Any) -> None:
    for number in range(100):
        recording.work(100.0 * number, 95, CONV)
    verdict = imported(recording).verdict
    assert verdict.id == "compute-bound"
    assert "kernels computed 95 % of the time" in verdict.sentence


def test_a_gpu_that_waits_without_a_large_cause_is_idle(recording: Any) -> None:
    for number in range(100):
        recording.work(100.0 * number, 20, CONV)
    verdict = imported(recording).verdict
    assert (verdict.id, verdict.share) == ("gpu-idle", pytest.approx(0.8, abs=0.02))
    assert "for reasons that the recording does not show" in verdict.sentence
