from __future__ import annotations

from typing import Any

import pytest
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import find_gpu_activity
from perfwrap.measures.kernels.gpu_generation import major_capability


def found(recording: Any) -> int | None:
    (gpu,) = find_gpu_activity(Evidence(recording.build()))
    return major_capability(gpu)


@pytest.mark.parametrize(
    ("name", "major"),
    [
        ("Tesla V100-SXM2-32GB", 7),
        ("Tesla T4", 7),
        ("NVIDIA GeForce RTX 2080 Ti", 7),
        ("NVIDIA A100-PG509-200", 8),
        ("NVIDIA GeForce RTX 3080", 8),
        ("NVIDIA L40S", 8),
        ("NVIDIA H100 80GB HBM3", 9),
        ("NVIDIA GH200 480GB", 9),
        ("NVIDIA B200", 10),
        ("NVIDIA GeForce RTX 5090", 10),
        ("Quadro GP100", 6),
        ("AMD Instinct MI300X", None),
    ],
)
def test_the_name_of_the_product_decides(recording: Any, name: str, major: int | None) -> None:
    recording.work(0, 10)
    recording.device_fact("name", name)
    assert found(recording) == major


def test_what_the_driver_says_is_surer(recording: Any) -> None:
    recording.work(0, 10)
    recording.device_fact("name", "Something new")
    recording.device_fact("compute_capability", "12.0")
    assert found(recording) == 12


def test_names_of_kernels_show_at_least_something(recording: Any) -> None:
    recording.work(0, 10, "volta_sgemm_128x64_nt")
    assert found(recording) == 7


def test_else_it_is_not_known(recording: Any) -> None:
    recording.work(0, 10)
    assert found(recording) is None
