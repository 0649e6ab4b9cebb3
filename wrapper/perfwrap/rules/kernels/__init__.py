"""Rules about GPU kernels."""

from __future__ import annotations

from perfwrap.rules.kernels import (
    cudnn_autotune_off,
    dtype_casts,
    kernel_hotspot,
    layout_conversions,
    measured_kernels,
    misaligned_shapes,
    slow_attention,
    small_batch,
    tensor_cores_unused,
    unfused_elementwise,
)
from perfwrap.rules.model import Rule

TITLE = "GPU kernels"

RULES: tuple[Rule, ...] = (
    tensor_cores_unused,
    slow_attention,
    layout_conversions,
    dtype_casts,
    misaligned_shapes,
    unfused_elementwise,
    cudnn_autotune_off,
    small_batch,
    kernel_hotspot,
    measured_kernels,
)
"""In the order in which they are shown and claim time."""
