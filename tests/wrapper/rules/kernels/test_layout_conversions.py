from __future__ import annotations

from typing import Any

import pytest
from perfwrap.rules.kernels import layout_conversions as rule
from perfwrap.rules.model import Clear

CONV = "cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8"
TO = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>"
BACK = "void cudnn::ops::nhwcToNchwKernel<__half, __half, float, true, false>"


def test_turning_tensors_around_convolutions_is_found(gpu_loop: Any) -> None:
    gpu_loop.sequence((TO, 5), (CONV, 40), (BACK, 5), (CONV, 40), (CONV, 10))
    finding = gpu_loop.find(rule)
    assert finding.share == pytest.approx(0.1, abs=0.005)
    assert "torch.channels_last)" in finding.advice
    assert "nchwToNhwcKernel" in finding.evidence[0] or "nhwcToNchwKernel" in finding.evidence[0]


def test_volumes_are_advised_their_own_format(gpu_loop: Any) -> None:
    gpu_loop.sequence(
        (TO, 5), ("void convolveNd_dgrad_float_engine<float, 3>", 40), (CONV, 45), (BACK, 5), (CONV, 5)
    )
    assert "channels_last_3d" in gpu_loop.find(rule).advice


def test_a_few_of_them_are_clear(gpu_loop: Any) -> None:
    gpu_loop.sequence((TO, 2), (CONV, 40), (BACK, 2), (CONV, 40), (CONV, 16))
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_without_kernels_it_is_not_checked(gpu_loop: Any) -> None:
    gpu_loop.recording.host(0, 10, "optimizer", "optimizer")
    assert gpu_loop.outcome(rule).state == "not checked"
