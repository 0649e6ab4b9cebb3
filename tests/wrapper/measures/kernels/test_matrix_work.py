from __future__ import annotations

import json
from typing import Any

import pytest
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import find_gpu_activity
from perfwrap.measures.kernels.matrix_work import MatrixWork, find_matrix_work

HALF_GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
PLAIN_GEMM = "ampere_sgemm_128x64_tn"
TF32_GEMM = "cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4"


def work(
    recording: Any, kernel: str, kind: str, took: float = 881, sizes: bool = True, calls: int = 10
) -> MatrixWork:
    """Return the work of products of 4096 on an A100, each of which takes so many microseconds."""
    dims = [[4096, 4096], [4096, 4096]]
    detail = json.dumps({"op": "aten::mm", "dims": dims, "types": [kind] * 2})
    for number in range(calls):
        start = 1_000 * number
        recording.host(start, 5, "op", name="aten::mm")
        if sizes or number == 0:
            recording.builder.add_row(
                "marks",
                time=start * 1000,
                track=recording.main,
                name="matrix",
                detail=detail,
                source="kineto",
            )
        recording.work(start + 10, took, kernel, launched=start + 1)
    recording.device_fact("name", "NVIDIA A100-SXM4-40GB")
    recording.device_fact("memory_total_bytes", "42505273344")
    (gpu,) = find_gpu_activity(Evidence(recording.build()))
    found = find_matrix_work(Evidence(gpu.timeline), gpu)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("kernel", "kind", "precision", "peak"),
    [
        (HALF_GEMM, "c10::BFloat16", "half", 312e12),
        (TF32_GEMM, "float", "tf32", 156e12),
        (PLAIN_GEMM, "float", "fp32", 19.5e12),
    ],
)
def test_mfu_is_of_the_peak_of_the_precision_that_was_used(
    recording: Any, kernel: str, kind: str, precision: str, peak: float
) -> None:
    found = work(recording, kernel, kind, took=10_000, calls=1)
    assert found.table["precision"][0] == precision
    expected = 2 * 4096**3 / peak / 0.01
    assert found._at_peak == pytest.approx(expected)
    assert found.mfu == pytest.approx(expected) if expected <= 1 else found.mfu is None


def test_flops_calls_and_time_are_summed_by_sizes(recording: Any) -> None:
    found = work(recording, HALF_GEMM, "c10::BFloat16")
    (row,) = found.table.iter_rows(named=True)
    assert (row["calls"], row["ns"], row["flops"]) == (10, 8_810_000, 10 * 2 * 4096**3)
    assert found.bound(row) == "compute"
    assert found.counted_share == 1
    assert found.mfu == pytest.approx(10 * 2 * 4096**3 / 312e12 / 9_881e-6, rel=0.001)


def test_more_than_the_gpu_can_do_is_refused_with_the_reason(recording: Any) -> None:
    found = work(recording, HALF_GEMM, "c10::BFloat16", took=100, calls=1)
    assert found.mfu is None
    assert "more than is possible" in found.why_no_mfu


def test_where_most_kernels_have_no_sizes_nothing_is_said_about_all(recording: Any) -> None:
    found = work(recording, HALF_GEMM, "c10::BFloat16", sizes=False)
    assert found.mfu is None
    assert "only 10 %" in found.why_no_mfu


def test_a_type_without_a_peak_is_refused(recording: Any) -> None:
    assert "precision" in work(recording, PLAIN_GEMM, "double").why_no_mfu


def test_the_order_of_host_and_gpu_does_not_matter(recording: Any) -> None:
    # As in captures whose GPU clock is off by much: kernels before their launches.
    detail = json.dumps({"op": "aten::mm", "dims": [[8, 8], [8, 8]], "types": ["float"] * 2})
    recording.host(200_000, 5, "op", name="aten::mm")
    recording.builder.add_row(
        "marks", time=200_000_000, track=recording.main, name="matrix", detail=detail, source="kineto"
    )
    recording.work(50, 10, PLAIN_GEMM, launched=200_001)
    (gpu,) = find_gpu_activity(Evidence(recording.build()))
    found = find_matrix_work(Evidence(gpu.timeline), gpu)
    assert found is not None
    assert found.table["ns"].to_list() == [10_000]


def test_without_sizes_there_is_nothing(recording: Any) -> None:
    recording.work(0, 10, PLAIN_GEMM)
    (gpu,) = find_gpu_activity(Evidence(recording.build()))
    assert find_matrix_work(Evidence(gpu.timeline), gpu) is None


def test_a_reader_that_doubts_the_gpus_clock_is_believed(recording: Any) -> None:
    recording.work(0, 10, launched=-5)
    recording.builder.add_row(
        "coverage", what="gpu_clock", track=recording.process, start=0, end=100, note="off", source="kineto"
    )
    (gpu,) = find_gpu_activity(Evidence(recording.build()))
    assert gpu.events.clock_is_off


def test_a_clock_without_contrary_evidence_is_right(recording: Any) -> None:
    recording.work(0, 10, launched=-5)
    (gpu,) = find_gpu_activity(Evidence(recording.build()))
    assert not gpu.events.clock_is_off
