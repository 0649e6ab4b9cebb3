from __future__ import annotations

import json
from typing import Any

import pytest
from perfwrap.rules.kernels import kernel_hotspot as rule
from perfwrap.rules.model import Clear

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
SOFTMAX = "void cunn_SoftMaxForward<8, c10::BFloat16, float>"
REST = tuple((f"other_kernel_{number}", 10) for number in range(5))


def ncu(gpu_loop: Any, name: str, compute: float, memory: float) -> None:
    said = {"kernel": name, "duration_ns": 1000, "compute_share": compute, "memory_share": memory}
    gpu_loop.recording.builder.add_row(
        "marks", time=0, track=gpu_loop.recording.process, name="ncu", detail=json.dumps(said), source="ncu"
    )


def products(gpu_loop: Any, size: int, took: float) -> None:
    """Write products of that size, each of which takes its kernel so many microseconds."""
    recording = gpu_loop.recording
    detail = json.dumps({"op": "aten::mm", "dims": [[size, size], [size, size]], "types": ["c10::Half"] * 2})
    for number in range(60):
        start = number * (took + 10)
        recording.host(start, 5, "op", name="aten::mm")
        recording.builder.add_row(
            "marks",
            time=round(start * 1000),
            track=recording.main,
            name="matrix",
            detail=detail,
            source="kineto",
        )
        recording.work(start + 10, took, GEMM, launched=start + 1)
    recording.host(60 * (took + 10), 5, "optimizer", "optimizer")
    recording.device_fact("name", "NVIDIA A100-SXM4-40GB")
    recording.device_fact("memory_total_bytes", "42505273344")


def test_a_kernel_of_which_nothing_more_is_known_is_a_note(gpu_loop: Any) -> None:
    gpu_loop.sequence((GEMM, 50), *REST)
    finding = gpu_loop.find(rule)
    assert finding.informational
    assert finding.sentence.startswith("50 % of the GPU's time is one kernel, ampere_bf16")
    assert "limit is unknown" in finding.evidence[1]


def test_a_softmax_is_limited_by_memory(gpu_loop: Any) -> None:
    gpu_loop.sequence((SOFTMAX, 50), *REST)
    assert "memory-bound" in gpu_loop.find(rule).evidence[1]


def test_what_ncu_measured_shows_how_far_it_is_from_its_limit(gpu_loop: Any) -> None:
    gpu_loop.sequence((GEMM, 50), *REST)
    ncu(gpu_loop, GEMM, 0.2, 0.3)
    finding = gpu_loop.find(rule)
    assert not finding.informational
    # 30 % of the roofline where 60 to 80 % can be had: half to five eighths of its half goes.
    assert finding.share == pytest.approx(0.25, abs=0.002)
    assert finding.saving == (pytest.approx(1 - 0.5 * 5 / 8, abs=0.002), pytest.approx(0.75, abs=0.002))
    assert "limited by latency" in finding.evidence[1]


def test_a_kernel_near_its_limit_is_a_note(gpu_loop: Any) -> None:
    gpu_loop.sequence((GEMM, 50), *REST)
    ncu(gpu_loop, GEMM, 0.9, 0.3)
    assert gpu_loop.find(rule).informational


def test_sizes_are_held_against_the_balance_point(gpu_loop: Any) -> None:
    # 2 * 4096^3 FLOPs take an A100 440 us at 312 TFLOP/s; 881 us are half of that, 1365 FLOPs per byte.
    products(gpu_loop, 4096, 881)
    finding = gpu_loop.find(rule)
    assert "1,400 FLOPs per byte" in finding.evidence[1]
    assert "balance point of the A100 40 GB is 200" in finding.evidence[1]
    assert "50 % of that limit" in finding.evidence[1]
    assert finding.share == pytest.approx(0.99 * (1 - 0.5 / 0.6), abs=0.01)


def test_sizes_that_would_need_more_time_are_not_believed(gpu_loop: Any) -> None:
    products(gpu_loop, 4096, 100)
    finding = gpu_loop.find(rule)
    assert finding.informational
    assert "the shapes are incomplete" in finding.evidence[1]


def test_many_different_kernels_are_clear(gpu_loop: Any) -> None:
    gpu_loop.sequence((GEMM, 15), *REST)
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_collectives_are_left_out(gpu_loop: Any) -> None:
    gpu_loop.sequence(("ncclDevKernel_AllReduce", 50), *REST)
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_without_kernels_it_is_not_checked(gpu_loop: Any) -> None:
    gpu_loop.recording.host(0, 10, "optimizer", "optimizer")
    assert gpu_loop.outcome(rule).state == "not checked"
