from __future__ import annotations

from typing import Any

import pytest
from perfwrap.rules.kernels import slow_attention as rule
from perfwrap.rules.model import Clear

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
SCALE = "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<c10::BFloat16>>"
SOFTMAX = (
    "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 7, false, false>"
)
LOSS = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>"
OTHER_LOSS = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, LogSoftMaxForwardEpilogue>"
)
FUSED = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, half_t>>"


def test_a_softmax_between_two_products_is_found(gpu_loop: Any) -> None:
    gpu_loop.sequence(
        (GEMM, 20), (SCALE, 10), (SOFTMAX, 30), (GEMM, 20), ("layer_norm_kernel", 10), (GEMM, 10)
    )
    finding = gpu_loop.find(rule)
    assert finding.share == pytest.approx(0.4, abs=0.005)
    assert "softmax_warp_forward" in finding.evidence[1]
    assert "scaled_dot_product_attention" in finding.advice


@pytest.mark.parametrize("softmax", [LOSS, OTHER_LOSS])
def test_the_softmax_of_a_loss_is_none(gpu_loop: Any, softmax: str) -> None:
    gpu_loop.sequence((GEMM, 20), (softmax, 30), (GEMM, 20), (GEMM, 20), (GEMM, 20))
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_a_softmax_that_no_product_follows_is_none(gpu_loop: Any) -> None:
    gpu_loop.sequence((GEMM, 20), (SOFTMAX, 30), ("layer_norm_kernel", 10), (GEMM, 20), (GEMM, 20))
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_fused_attention_is_clear_and_said(gpu_loop: Any) -> None:
    gpu_loop.sequence((GEMM, 20), (FUSED, 30), (GEMM, 20), (SCALE, 10), (GEMM, 20))
    answer = gpu_loop.ask(rule)
    assert isinstance(answer, Clear)
    assert "20 fused attention kernels" in answer.why


def test_without_kernels_it_is_not_checked(gpu_loop: Any) -> None:
    gpu_loop.recording.host(0, 10, "optimizer", "optimizer")
    assert gpu_loop.outcome(rule).state == "not checked"
