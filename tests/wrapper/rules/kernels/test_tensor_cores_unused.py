from __future__ import annotations

from typing import Any

import pytest
from perfwrap.rules.kernels import tensor_cores_unused as rule
from perfwrap.rules.model import Clear, NotChecked

PLAIN = "cutlass_simt_sgemm_128x64"


def write(gpu_loop: Any, name: str, device: str = "") -> None:
    for _ in range(10):
        gpu_loop.step(name=name)
    if device:
        gpu_loop.recording.device_fact("name", device)


def test_products_in_fp32_are_found_on_a_gpu_that_can_do_better(gpu_loop: Any) -> None:
    write(gpu_loop, PLAIN, "NVIDIA A100-SXM4-40GB")
    finding = gpu_loop.find(rule)
    assert finding.sentence.startswith("90 % of the GPU's time")
    assert finding.share == pytest.approx(0.3, abs=0.01)
    assert finding.saving == (pytest.approx(0.325, abs=0.01), pytest.approx(0.7, abs=0.01))
    assert [option.experiment for option in finding.options] == ["tf32", "bf16"]
    assert "bfloat16" in finding.options[1].edit
    assert PLAIN in finding.evidence[1]


def test_a_geforce_is_not_advised_to_use_tf32_and_promised_no_more_than_its_peaks(gpu_loop: Any) -> None:
    write(gpu_loop, PLAIN, "NVIDIA GeForce RTX 4090")
    finding = gpu_loop.find(rule)
    assert "set_float32_matmul_precision" not in finding.advice
    assert "bfloat16" in finding.advice
    assert [option.experiment for option in finding.options] == ["bf16"]
    assert finding.saving == (pytest.approx(0.55, abs=0.01), pytest.approx(0.7, abs=0.01))


def test_a_volta_is_advised_to_use_float16(gpu_loop: Any) -> None:
    write(gpu_loop, "volta_sgemm_128x64_nt")
    finding = gpu_loop.find(rule)
    assert "float16" in finding.advice
    assert "bfloat16" not in finding.advice
    assert [option.experiment for option in finding.options] == ["fp16"]


def test_a_pascal_has_none_to_use(gpu_loop: Any) -> None:
    write(gpu_loop, PLAIN, "Quadro GP100")
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_products_on_tensor_cores_are_clear(gpu_loop: Any) -> None:
    write(gpu_loop, "ampere_bf16_s16816gemm_bf16_128x128")
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_a_few_products_beside_others_on_tensor_cores_are_clear(gpu_loop: Any) -> None:
    for _ in range(3):
        gpu_loop.step(name=PLAIN)
    write(gpu_loop, "ampere_bf16_s16816gemm_bf16_128x128")
    assert isinstance(gpu_loop.ask(rule), Clear)


@pytest.mark.parametrize(("name", "why"), [("my_gemm", "names"), (PLAIN, "GPU model is unknown")])
def test_what_is_not_known_is_not_checked(gpu_loop: Any, name: str, why: str) -> None:
    write(gpu_loop, name)
    answer = gpu_loop.ask(rule)
    assert isinstance(answer, NotChecked)
    assert why in answer.why


def test_without_kernels_it_is_not_checked(gpu_loop: Any) -> None:
    gpu_loop.recording.host(0, 10, "optimizer", "optimizer")
    assert gpu_loop.outcome(rule).state == "not checked"
