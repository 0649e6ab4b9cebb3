from __future__ import annotations

from typing import Any

import pytest
from perfwrap.rules.kernels import unfused_elementwise as rule
from perfwrap.rules.model import Clear

GEMM = "ampere_bf16_s16816gemm_bf16_128x128"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)>"
ADAM = "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>"


def test_operations_in_a_row_are_found(gpu_loop: Any) -> None:
    gpu_loop.sequence((GEMM, 70), (ADD, 10), (GELU, 12), (ADD, 8), (GEMM, 20))
    finding = gpu_loop.find(rule)
    # Of each row of three the longest stays: 18 of 120 us go.
    assert finding.share == pytest.approx(18 / 120, abs=0.002)
    assert finding.saving == (pytest.approx(1 - 18 / 120, abs=0.002), pytest.approx(1 - 9 / 120, abs=0.002))
    assert "25 %" in finding.evidence[0]
    assert "3 in a row" in finding.evidence[0]


def test_lone_operations_between_products_have_nothing_to_be_fused_with(gpu_loop: Any) -> None:
    gpu_loop.sequence((GEMM, 30), (ADD, 20), (GEMM, 30), (GELU, 20), (GEMM, 10))
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_little_of_it_is_ordinary(gpu_loop: Any) -> None:
    gpu_loop.sequence((GEMM, 85), (ADD, 5), (GELU, 5), (ADD, 5), (GEMM, 10))
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_a_fused_optimizer_is_no_such_kernel(gpu_loop: Any) -> None:
    gpu_loop.sequence((GEMM, 50), (ADAM, 20), (ADAM, 20), (ADAM, 10), (GEMM, 10))
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_without_kernels_it_is_not_checked(gpu_loop: Any) -> None:
    gpu_loop.recording.host(0, 10, "optimizer", "optimizer")
    assert gpu_loop.outcome(rule).state == "not checked"
