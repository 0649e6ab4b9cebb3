from __future__ import annotations

from typing import Any

import pytest
from perfwrap.measures.gpu_activity import find_gpu_activity
from perfwrap.measures.gpu_peaks import PRODUCTS, peaks_named, peaks_of


@pytest.mark.parametrize(
    ("name", "gigabytes", "product"),
    [
        ("NVIDIA A100-SXM4-40GB", 42.5, "A100 40 GB"),
        ("NVIDIA A100-SXM4-80GB", 85.0, "A100 SXM4 80 GB"),
        ("NVIDIA A100 80GB PCIe", 85.0, "A100 PCIe 80 GB"),
        ("NVIDIA A100-PG509-200", 42.5, "A100 40 GB"),
        ("Tesla V100-SXM2-32GB", 34.1, "V100 SXM2"),
        ("Tesla V100-PCIE-16GB", 16.9, "V100 PCIe"),
        ("Tesla T4", 15.8, "T4"),
        ("NVIDIA H100 80GB HBM3", 85.0, "H100 SXM"),
        ("NVIDIA H100 PCIe", 85.0, "H100 PCIe"),
        ("NVIDIA H100 NVL", 100.0, "H100 NVL"),
        ("NVIDIA H200", 150.0, "H200 SXM"),
        ("NVIDIA L40S", 48.0, "L40S"),
        ("NVIDIA L4", 24.0, "L4"),
        ("NVIDIA GeForce RTX 3090", 25.0, "RTX 3090"),
        ("AMD Instinct MI300X", 206.0, "MI300X"),
    ],
)
def test_products_are_told_by_the_drivers_name(name: str, gigabytes: float, product: str) -> None:
    found = peaks_named(name, gigabytes * 1e9)
    assert found is not None
    assert found.product == product


@pytest.mark.parametrize(
    "name", ["", "Quadro GP100", "NVIDIA GeForce RTX 3080 Ti", "NVIDIA A1000", "NVIDIA L400"]
)
def test_what_is_not_in_the_table_is_not_guessed(name: str) -> None:
    assert peaks_named(name, 16e9) is None


def test_an_a100_of_unknown_size_has_no_figures() -> None:
    assert peaks_named("NVIDIA A100") is None


def test_an_h100_balances_at_295_flops_per_byte() -> None:
    found = peaks_named("NVIDIA H100 80GB HBM3")
    assert found is not None
    assert found.balance("half") == pytest.approx(295, abs=1)
    assert found.flops("double") == 0


def test_fewer_bits_are_never_slower_and_each_figure_has_a_source() -> None:
    for _, _, peaks in PRODUCTS:
        assert 0 < peaks.fp32 <= peaks.half
        assert peaks.tf32 == 0 or peaks.fp32 <= peaks.tf32 <= peaks.half
        assert 1e11 < peaks.bandwidth < 1e13
        assert peaks.source


def test_the_gpu_of_a_recording_is_looked_up(recording: Any) -> None:
    recording.work(0, 10)
    recording.device_fact("name", "NVIDIA A100-SXM4-80GB")
    recording.device_fact("memory_total_bytes", "85899345920")
    (gpu,) = find_gpu_activity(recording.build())
    found = peaks_of(gpu)
    assert found is not None
    assert found.bandwidth == 2039e9


def test_a_gpu_without_a_name_is_not_looked_up(recording: Any) -> None:
    recording.work(0, 10)
    (gpu,) = find_gpu_activity(recording.build())
    assert peaks_of(gpu) is None
