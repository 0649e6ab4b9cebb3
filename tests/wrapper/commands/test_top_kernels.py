"""Names of functions as ncu has them, out of what nsys and PyTorch's profiler write."""

from __future__ import annotations

from pathlib import Path

import pytest
from perfwrap.commands.top_kernels import function, top_kernels
from perfwrap.errors import PerfwrapError


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("void at::native::elementwise_kernel<4, at::F<c10::Half>>(int, T2, T3)", "elementwise_kernel"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm>(cutlass_80_tensorop_s1688gemm::Params)", "Kernel"),
        ("ncclKernel_AllReduce_Sum_float(ncclDevComm*, unsigned long)", "ncclKernel_AllReduce_Sum_float"),
        ("void at::(anonymous namespace)::multi_tensor<at::T<(int)2>>(T1)", "multi_tensor"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("void f<&(g<int>)>(int)", "f"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_function_is_named_without_type_namespace_and_arguments(kernel: str, name: str) -> None:
    assert function(kernel) == name


def test_without_any_run_the_way_to_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PerfwrapError) as refused:
        top_kernels(None)
    assert "perfwrap run --nsys" in str(refused.value.hint)
