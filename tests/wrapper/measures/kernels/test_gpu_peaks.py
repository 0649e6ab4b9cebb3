from __future__ import annotations

from typing import Any

import pytest
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import find_gpu_activity
from perfwrap.measures.kernels.gpu_peaks import PRODUCTS, peaks_named, peaks_of


@pytest.mark.parametrize(
    ("name", "gigabytes", "product"),
    [
        ("NVIDIA A100-SXM4-40GB", 42.5, "A100 40 GB"),
        ("NVIDIA A100-SXM4-80GB", 85.0, "A100 SXM4 80 GB"),
        ("NVIDIA A100 80GB PCIe", 85.0, "A100 PCIe 80 GB"),
        ("NVIDIA A100-PG509-200", 42.5, "A100 40 GB"),
        ("Tesla V100-SXM2-32GB", 34.1, "V100 SXM2"),
        ("Tesla V100-PCIE-16GB", 16.9, "V100 PCIe"),
        ("Tesla V100S-PCIE-32GB", 34.1, "V100S PCIe"),
        ("Tesla V100-DGXS-32GB", 34.1, "V100 SXM2"),
        ("A100-PCIE-40GB", 42.5, "A100 40 GB"),
        ("NVIDIA A10", 24.1, "A10"),
        ("NVIDIA A10G", 24.1, "A10G"),
        ("NVIDIA RTX A6000", 51.0, "RTX A6000"),
        ("NVIDIA RTX 6000 Ada Generation", 51.0, "RTX 6000 Ada"),
        ("Tesla T4", 15.8, "T4"),
        ("NVIDIA H100 80GB HBM3", 85.0, "H100 SXM"),
        ("NVIDIA H100 PCIe", 85.0, "H100 PCIe"),
        ("NVIDIA H100 NVL", 100.0, "H100 NVL"),
        ("NVIDIA H200", 150.0, "H200 SXM"),
        ("NVIDIA H200 NVL", 150.0, "H200 NVL"),
        ("NVIDIA GH200 480GB", 102.0, "GH200 96 GB"),
        ("NVIDIA GH200 144G HBM3e", 153.0, "GH200 144 GB"),
        ("NVIDIA B200", 192.0, "B200"),
        ("NVIDIA GB200", 198.0, "GB200"),
        ("NVIDIA L40S", 48.0, "L40S"),
        ("NVIDIA L4", 24.0, "L4"),
        ("NVIDIA GeForce RTX 3080", 10.7, "RTX 3080 10 GB"),
        ("NVIDIA GeForce RTX 3090", 25.0, "RTX 3090"),
        ("NVIDIA GeForce RTX 3090 Ti", 25.0, "RTX 3090 Ti"),
        ("AMD Instinct MI300X", 206.0, "MI300X"),
    ],
)
def test_products_are_recognised_by_the_drivers_name(name: str, gigabytes: float, product: str) -> None:
    found = peaks_named(name, gigabytes * 1e9)
    assert found is not None
    assert found.product == product


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        ("", 16),
        ("Quadro GP100", 16),
        ("NVIDIA A1000", 16),
        ("NVIDIA L400", 16),
        ("NVIDIA GeForce RTX 3080 Ti", 12),
        ("NVIDIA GeForce RTX 3080", 12.9),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", 10),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 17),
        ("NVIDIA GeForce RTX 4090 D", 25),
        ("NVIDIA GeForce RTX 4080 SUPER", 17),
        ("Tesla V100-FHHL-16GB", 17),
        ("Tesla V100-SXM3-32GB", 34),
        ("NVIDIA A100-SXM-64GB", 68),
        ("NVIDIA A100X", 85),
        ("NVIDIA H100 64GB HBM2", 68),
        ("NVIDIA H100", 101),
        ("NVIDIA A40-48Q", 51),
        ("GRID T4-16Q", 16),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 42),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10),
    ],
)
def test_what_is_not_in_the_table_is_not_guessed(name: str, gigabytes: float) -> None:
    assert peaks_named(name, gigabytes * 1e9) is None


def test_an_a100_of_unknown_size_has_no_figures() -> None:
    assert peaks_named("NVIDIA A100") is None


def test_an_h100_balances_at_295_flops_per_byte() -> None:
    found = peaks_named("NVIDIA H100 80GB HBM3")
    assert found is not None
    assert found.balance("half") == pytest.approx(295, abs=1)
    assert found.flops("double") == 0


def test_geforce_cards_count_with_sums_in_fp32_and_gain_nothing_by_tf32() -> None:
    found = peaks_named("NVIDIA GeForce RTX 4090")
    assert found is not None
    assert found.tf32 == found.fp32
    assert found.half == pytest.approx(2 * found.fp32)


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
    (gpu,) = find_gpu_activity(Evidence(recording.build()))
    found = peaks_of(gpu)
    assert found is not None
    assert found.bandwidth == 2039e9


def test_a_gpu_that_was_sliced_is_not_looked_up(recording: Any) -> None:
    recording.work(0, 10)
    recording.device_fact("name", "NVIDIA A100-SXM4-80GB")
    recording.device_fact("memory_total_bytes", "85899345920")
    recording.device_fact("mig", "on")
    (gpu,) = find_gpu_activity(Evidence(recording.build()))
    assert peaks_of(gpu) is None


def test_a_gpu_without_a_name_is_not_looked_up(recording: Any) -> None:
    recording.work(0, 10)
    (gpu,) = find_gpu_activity(Evidence(recording.build()))
    assert peaks_of(gpu) is None
