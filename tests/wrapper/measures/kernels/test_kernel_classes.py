"""Names as cuBLAS, cuDNN, CUTLASS, PyTorch, Triton, NCCL and ROCm give them, and what they are."""

# ruff: noqa: E501 - that is how long names of kernels are

from __future__ import annotations

import polars as pl
import pytest
from perfwrap.measures.kernels.kernel_classes import CLASSES, classify

YES, NO, UNKNOWN = True, False, None


@pytest.mark.parametrize(
    ("name", "kind", "tensor"),
    [
        ("volta_sgemm_128x64_nt", "gemm", NO),
        ("ampere_sgemm_32x128_tn", "gemm", NO),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "gemm", YES),
        ("turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_tn", "gemm", YES),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_nt", "gemm", YES),
        ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_stage4_warpsize2x2x1_tensor16x8x16", "gemm", YES),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>(T1::Params)", "gemm", YES),
        ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(T1::Params)", "gemm", NO),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off", "gemm", YES),
        ("cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x128x64", "gemm", YES),
        ("cutlass3x_sm100_tensorop_h256x256x16gemm_bf16_tcgen05", "gemm", YES),
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", "gemm", YES),
        ("nvjet_sm100_tst_64x32_64x16_2x1_2cta_h_bz_TNT", "gemm", YES),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_MI32x32x8x1_SN", "gemm", YES),
        ("void gemv2T_kernel_val<int, int, float, float, float, 128, 16, 4, 4, false>", "gemm", NO),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float>", "gemm", UNKNOWN),
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tensor16x8x8_execute_kernel_cudnn", "conv", YES),
        ("void xmma_cudnn::gemm::kernel<xmma_cudnn::implicit_gemm::wgrad_indexed::Kernel_traits<xmma_cudnn::Ampere_hmma_tf32_traits", "conv", YES),
        ("_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock22NS_9NoPermute11MmaTensorOp", "conv", YES),
        ("volta_scudnn_128x64_relu_interior_nn_v1", "conv", NO),
        ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>", "conv", UNKNOWN),
        ("void convolveNd_dgrad_float_engine<float, (int)3, (int)512>", "conv", NO),
        ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>", "conv", NO),
        ("miopenSp3AsmConv_v30_3_1_gfx9_fp32_f3x2_stride1", "conv", UNKNOWN),
        ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t", "attention", YES),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float", "attention", UNKNOWN),
        ("fmha_cutlassB_f16_aligned_64x64_k64_sm80(PyTorchMemEffAttention::AttentionBackwardKernel", "attention", YES),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, at::detail::Array<char*, 3> >", "elementwise", NO),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<4>, AdamFunctor", "elementwise", NO),
        ("triton_poi_fused_add_relu_3", "elementwise", NO),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>", "reduction", NO),
        ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>", "reduction", NO),
        ("triton_red_fused_mean_7", "reduction", NO),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>", "normalisation", NO),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>", "normalisation", NO),
        ("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::direct_copy_kernel_cuda", "copy", NO),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 4, 64, 64>", "copy", NO),
        ("void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>", "copy", NO),
        ("__amd_rocclr_copyBuffer", "copy", NO),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "collective", NO),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "collective", NO),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>", "collective", NO),
        ("void dali::kernels::detail::gpu::FlipKernel<5ul, true, float>", "other", NO),
        ("my_kernel", "other", NO),
        ("void convert_layout(float*)", "other", NO),
    ],
)  # fmt: skip
def test_a_name_shows_what_a_kernel_is(name: str, kind: str, tensor: bool | None) -> None:
    assert classify(pl.Series([name])).row(0, named=True) == {"name": name, "class": kind, "tensor": tensor}


def test_each_different_name_is_judged_once() -> None:
    found = classify(pl.Series(["nvjet_x", "nvjet_x", None, "other"], dtype=pl.String))
    assert sorted(found["name"].to_list()) == ["nvjet_x", "other"]
    assert set(found["class"].to_list()) <= set(CLASSES)
