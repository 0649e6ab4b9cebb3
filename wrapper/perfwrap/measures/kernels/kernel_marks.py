"""More from kernel names: casts, copies that only move data, layout changes, single elementwise operations, alignment.

Names as in ``kernel_classes``. PyTorch copies contiguous tensors of one type with the driver's memcpy, so its unrolled
copy kernels change the type (aten/src/ATen/native/cuda/Copy.cu, CUDALoops.cuh), and the others gather non-contiguous
data.
"""

from __future__ import annotations

import polars as pl

from perfwrap.measures.kernels.gpu_activity import GpuActivity

CAST = (
    r"unrolled_elementwise_kernel<.{0,80}(direct_copy_kernel|copy_device_to_device)"
    r"|(bfloat16|half|float16|float8\w*)_copy_kernel|triton_poi_fused_+to_copy_\d"
)
"""Kernels that change only the type of a tensor."""

MOVE = r"direct_copy_kernel|copy_device_to_device|triton_poi_fused_clone_\d"
"""Copies within the GPU's memory by a kernel; those of CAST change the type, the others the order."""

LAYOUT = (
    r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|nchwAddPadding|batched_transpose_\d|transpose_NCHW|transpose_NHWC"
    r"|ncdhwToNdhwc|ndhwcToNcdhw"
)
"""Kernels of cuDNN and MIOpen that convert between channels-first and channels-last."""

POINTWISE = r"(vectorized_|unrolled_)?elementwise_kernel|fused_dropout_kernel|op_tensor_kernel"
"""PyTorch's kernels of one elementwise operation; those of compilers and optimizers do many at once."""

NO_POINTWISE = (
    r"copy_kernel|copy_device_to_device|index|scatter|gather|embedding|distribution_|fill|multi_tensor|arange"
)

SOFTMAX = r"softmax"
LOG_SOFTMAX = r"LogSoftMax|softmax_warp_(for|back)ward<[^<>]*, true, |log_softmax"
"""Belongs to a loss, not to attention; in ``softmax_warp_forward`` the first flag shows it."""

ALIGNMENT = r"(?:_align|_ldg)(\d)"
HALF_KERNEL = r"bf16|_f16|fp16|_h\d{3,}|h884|h1688|h16816|half|16816gemm|161616gemm"
"""Tensor-core kernels that read 16-bit elements; cuBLAS names TF32 ones s1688 and no type."""
HALF_ELEMENTS, TF32_ELEMENTS = 8, 4
"""Elements of 16 bytes, which an aligned kernel reads at once."""


def of_kernels(gpu: GpuActivity) -> pl.DataFrame:
    """Return start, end, track, name, class, tensor and duration ``ns`` of a GPU's kernels."""
    rows = gpu.events.table.filter(pl.col("category") == "kernel")
    length = (pl.col("end") - pl.col("start")).alias("ns")
    return rows.select(
        "start", "end", "track", pl.col("name").fill_null(""), "class", "tensor", "nccl", length
    )


def marked(pattern: str, but: str = "") -> pl.Expr:
    """Return the condition on kernels whose name matches a pattern and not the other one."""
    found = pl.col("name").str.contains(f"(?i){pattern}")
    return found & ~pl.col("name").str.contains(f"(?i){but}") if but else found


def misaligned() -> pl.Expr:
    """Return the condition on tensor-core kernels that libraries use for unaligned sizes."""
    elements = pl.col("name").str.extract(ALIGNMENT).cast(pl.Int64)
    wanted = pl.when(marked(HALF_KERNEL)).then(HALF_ELEMENTS).otherwise(TF32_ELEMENTS)
    return (pl.col("tensor").fill_null(False) & (elements < wanted)).fill_null(False)


def chains(rows: pl.DataFrame, condition: pl.Expr) -> pl.DataFrame:
    """Return number, total and longest duration of each run of consecutive matching kernels on one stream.

    ``rows`` are those of ``of_kernels``; runs of one kernel are left out.
    """
    ordered = rows.sort("track", "start").with_columns(condition.alias("is"))
    changes = (pl.col("is") != pl.col("is").shift(1)) | (pl.col("track") != pl.col("track").shift(1))
    numbered = ordered.with_columns(changes.fill_null(True).cum_sum().alias("run")).filter("is")
    runs = numbered.group_by("run").agg(
        pl.len().alias("count"), pl.col("ns").sum(), pl.col("ns").max().alias("longest")
    )
    return runs.filter(pl.col("count") > 1).sort("run")
