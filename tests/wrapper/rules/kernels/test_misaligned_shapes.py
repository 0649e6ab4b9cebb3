from __future__ import annotations

import json
from typing import Any

import pytest
from perfwrap.rules.kernels import misaligned_shapes as rule
from perfwrap.rules.model import Clear

HALF_1 = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>(Params)"
HALF_8 = "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_32x1_nn_align8>(Params)"
TF32_4 = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>(Params)"
TF32_1 = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x4_nn_align1>(Params)"
LOADS_8 = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
NO_TENSOR = "ampere_sgemm_128x64_tn"


@pytest.mark.parametrize(("odd", "even"), [(HALF_1, HALF_8), (TF32_1, TF32_4)])
def test_kernels_that_read_single_elements_are_found(gpu_loop: Any, odd: str, even: str) -> None:
    gpu_loop.sequence((even, 20), (odd, 30), (even, 20), (even, 20), (even, 10))
    finding = gpu_loop.find(rule)
    assert finding.sentence.startswith("30 % of the GPU's time")
    assert finding.share == pytest.approx(0.3 * (1 - 1 / 1.3), abs=0.002)
    assert finding.saving == (
        pytest.approx(0.8, abs=0.002),
        pytest.approx(1 - 0.3 * (1 - 1 / 1.3), abs=0.002),
    )
    assert "align1" in finding.evidence[0]
    assert "--window-detail shapes" in finding.evidence[1]


@pytest.mark.parametrize("even", [HALF_8, TF32_4, LOADS_8, NO_TENSOR])
def test_kernels_that_read_16_bytes_or_use_no_tensor_cores_are_clear(gpu_loop: Any, even: str) -> None:
    gpu_loop.sequence((even, 20), (even, 30), (even, 20), (even, 20), (even, 10))
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_the_sizes_are_named_where_they_were_recorded(gpu_loop: Any) -> None:
    recording = gpu_loop.recording
    detail = json.dumps({"op": "aten::mm", "dims": [[64, 1001], [1001, 32]], "types": ["c10::BFloat16"] * 2})
    for number in range(60):
        recording.host(number * 100, 20, "op", name="aten::mm")
        recording.builder.add_row(
            "marks",
            time=number * 100_000,
            track=recording.main,
            name="matrix",
            detail=detail,
            source="kineto",
        )
        recording.work(number * 100 + 30, 90, HALF_1, launched=number * 100 + 5)
    recording.host(6_000, 5, "optimizer", "optimizer")
    assert "mm of 64 x 1001 by 1001 x 32" in gpu_loop.find(rule).evidence[1]


def test_without_kernels_it_is_not_checked(gpu_loop: Any) -> None:
    gpu_loop.recording.host(0, 10, "optimizer", "optimizer")
    assert gpu_loop.outcome(rule).state == "not checked"
