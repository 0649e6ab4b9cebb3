"""The kind of work of a kernel, and whether it uses tensor cores, from its name.

Names are those of cuBLAS, cuDNN, CUTLASS, PyTorch's native kernels, Triton (Inductor), NCCL and their AMD counterparts.
The patterns for tensor cores up to Ampere are those of PyTorch's TensorBoard plug-in (torch_tb_profiler,
tensor_core.py) and XProf's kernel_stats_utils.cc; for Hopper and Blackwell the instructions in CUTLASS names (wgmma,
gmma, tcgen05), and nvjet, cuBLAS's matrix kernels from CUDA 12.6 on.
"""

from __future__ import annotations

import polars as pl

CLASSES = (
    "gemm",
    "conv",
    "attention",
    "elementwise",
    "reduction",
    "normalisation",
    "copy",
    "collective",
    "other",
)
"""The kinds, one word each."""

PATTERNS: tuple[tuple[str, str], ...] = (
    ("collective", r"nccl|rccl|msccl|cross_device_reduce|nvshmem|(one|two)_?shot_all_?reduce|multimem_"),
    ("attention", r"fmha|flash|attention|\bmha_|attn_(fwd|bwd)|_sdpa_|paged_kv"),
    (
        "normalisation",
        r"(batch|layer|group|instance|rms)_?norm|\bbn_(fw|bw)|RowwiseMoments|ComputeInternalGradients|GammaBeta"
        r"|ComputeFusedParams|_norm_kernel",
    ),
    ("conv", r"ImplicitGemmConvolution|convolution_impl"),
    (
        "copy",
        r"direct_copy|CatArrayBatchedCopy|copy_device_to_device|float(8|16)_copy|copy_kernel|copyBuffer|nchwToNhwc"
        r"|nhwcToNchw|nchw2nhwc|nhwc2nchw|transpose|permute|memcpy|triton_poi_fused_(_to_copy|clone)_\d",
    ),
    (
        "conv",
        r"conv([^e]|e[^r]|$)|implicit_gemm|[dw]grad|fprop|winograd|scudnn|im2col|col2im|vol2col|miopenSp3|igemm_"
        r"|cudnn.*_engine",
    ),
    (
        "gemm",
        r"gemm|gemv|\bgemvx|nvjet|cutlass|\bCijk_|_bmm\b|\bbmm_|splitK|xmma|triton_(tem|mm)|\bdot_kernel|matmul",
    ),
    (
        "reduction",
        r"reduce|softmax|softMax|triton_(red|per)_|\bscan|DeviceScan|nll_loss|argmax|cumsum|topk|sort",
    ),
    (
        "elementwise",
        r"elementwise|multi_tensor_apply|triton_poi|pointwise|vectorized_|fill|dropout|index|gather|scatter|embedding"
        r"|op_tensor_kernel|scalePackedTensor|distribution_|where_kernel|add_?bias|pool|upsample|masked_|arange|\bOpTensor",
    ),
)
"""The first matching pattern gives the class; case is ignored."""

MATRIX = ("gemm", "conv", "attention")
"""Classes of work that tensor cores can do."""

TENSOR = (
    r"h884|s884|h1688|s1688|c1688|hmma|imma|i8816|i16832|16816|16832|tensor16x8|tensor8x8|tensorop|tensor_op|wgmma"
    r"|gmma|tcgen05|utc[a-z]*mma|nvjet|dgrad_1x1_stride_2x2|first_layer_wgrad_kernel|conv2d_c1_k1|tf32f32|bf16bf16"
    r"|_mfma|\bCijk_.*_MI\d|xmma_(sparse_)?(gemm|conv)_(bf16|f16|e4m3|e5m2|i8)|pytorch_fmha::fmha_(f|b)wd"
    r"|flash_(f|b)wd.*(half_t|bfloat16_t|float_e)|fmha_.*_(f16|bf16)_"
)
"""Patterns for kernels that use tensor cores (matrix cores on AMD)."""

NO_TENSOR = (
    r"sgemm|simt|ffma|scudnn|gemv|gemmk1"
    r"|convolveNd|implicit_convolve|conv2d_grouped_direct|(dgrad|wgrad)\w*_(alg\d+_)?engine|dgrad_engine|conv_depthwise"
)
"""Patterns for kernels that do not; a name that matches both uses them."""


def classify(names: pl.Series) -> pl.DataFrame:
    """Return name, class and tensor (None if the name does not show it) of each distinct name."""
    name = pl.col("name")
    kinds = [pl.when(name.str.contains(f"(?i){pattern}")).then(pl.lit(found)) for found, pattern in PATTERNS]
    return (
        names.unique()
        .to_frame("name")
        .drop_nulls()
        .with_columns(pl.coalesce(*kinds, pl.lit("other")).alias("class"))
        .with_columns(_tensor().alias("tensor"))
    )


def _tensor() -> pl.Expr:
    """Return whether a kernel of the MATRIX classes uses tensor cores, false for other classes."""
    name = pl.col("name")
    return (
        pl.when(~pl.col("class").is_in(MATRIX))
        .then(False)
        .when(name.str.contains(f"(?i){TENSOR}"))
        .then(True)
        .when(name.str.contains(f"(?i){NO_TENSOR}"))
        .then(False)
    )
