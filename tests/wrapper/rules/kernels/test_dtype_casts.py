from __future__ import annotations

from typing import Any

import pytest
from perfwrap.rules.kernels import dtype_casts as rule
from perfwrap.rules.model import Clear

GEMM = "ampere_bf16_s16816gemm_bf16_128x128"
CAST = "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda"
OLD_CAST = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)"
MOVE = (
    "void elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda"
)


@pytest.mark.parametrize("name", [CAST, OLD_CAST])
def test_changes_of_type_are_found(gpu_loop: Any, name: str) -> None:
    gpu_loop.sequence((GEMM, 45), (name, 5), (GEMM, 45), (name, 5))
    finding = gpu_loop.find(rule)
    assert finding.sentence == "10 % of the GPU's time is kernels that only change the type of tensors."
    assert finding.saving == (pytest.approx(0.90, abs=0.01), pytest.approx(0.95, abs=0.01))
    assert "bf16" in (finding.experiment or "")


def test_copies_that_put_elements_in_order_count_from_ten_per_cent_on(gpu_loop: Any) -> None:
    gpu_loop.sequence((GEMM, 40), (MOVE, 6), (GEMM, 40), (MOVE, 6))
    finding = gpu_loop.find(rule)
    assert "only copy tensors" in finding.title
    assert finding.share == pytest.approx(0.13, abs=0.01)


def test_some_copies_are_ordinary(gpu_loop: Any) -> None:
    gpu_loop.sequence((GEMM, 45), (MOVE, 4), (GEMM, 45), (CAST, 2))
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_without_kernels_it_is_not_checked(gpu_loop: Any) -> None:
    gpu_loop.recording.host(0, 10, "optimizer", "optimizer")
    assert gpu_loop.outcome(rule).state == "not checked"
