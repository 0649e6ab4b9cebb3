from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.reports import json as json_report

Draw = Callable[..., str]


@pytest.fixture
def starved(recording: Any) -> Diagnosis:
    """A GPU that waits for data half of the time, and copies while nothing runs."""
    for start in range(0, 100_000, 1_000):
        recording.step(start, 1_000)
        recording.host(start + 300, 490, "data", "data")
        recording.copy(start + 800, 100, launched=start + 795, value=1_000)
        recording.work(start + 900, 200, "volta_sgemm_128x64_nt", launched=start + 895)
        recording.work(start + 1_100, 200, "ncclDevKernel_AllReduce", launched=start + 898)
        recording.host(start + 900, 50, "optimizer", "optimizer")
    return diagnose(recording.build())


def test_a_few_lines_show_what_a_gpu_did(starved: Diagnosis, drawn: Draw) -> None:
    lines = [line.strip() for line in drawn(starved).splitlines()]
    assert any(line.startswith("gpu/0") and "50 % busy" in line for line in lines)
    assert "Idle: waiting for data 49 %" in lines
    assert any(line.startswith("Exposed: collectives 20 %, copies 10 %") for line in lines)
    assert any(line.startswith("Kernels: collective 50 %, gemm 50 %") for line in lines)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(starved: Diagnosis, drawn: Draw, width: int) -> None:
    assert max(len(line) for line in drawn(starved, width).splitlines()) <= width


def test_what_is_estimated_is_marked_so(recording: Any, drawn: Draw) -> None:
    for start in range(0, 20_000, 1_000):
        recording.step(start, 300)
        recording.copy(start + 10, 10, launched=start + 5)
        recording.work(start + 20, 200, launched=start + 15)
    assert "waiting for data (estimated)" in " ".join(drawn(diagnose(recording.build())).split())


def test_many_gpus_are_not_all_shown(recording: Any, drawn: Draw) -> None:
    for device in range(12):
        recording.work(0, 10, device=device, launched=-5)
    text = drawn(diagnose(recording.build()))
    assert "gpu/7" in text
    assert "and 4 more GPUs" in text


def test_without_a_record_nothing_is_said(diagnosis: Diagnosis, drawn: Draw) -> None:
    assert "What each GPU did" not in drawn(diagnosis)


def test_the_document_carries_every_figure(starved: Diagnosis) -> None:
    (gpu,) = json_report.document(starved)["gpu"]
    counts = [gpu[key] for key in ("kernels", "copies", "memsets", "launches")]
    assert counts == [200, 100, 0, 200]
    assert gpu["window_ns"] == 99_500_000
    assert gpu["collective_ns"] == gpu["collective_exposed_ns"] == 20_000_000
    assert gpu["h2d_exposed_ns"] == 10_000_000
    assert sum(gpu["idle"].values()) + gpu["busy_share"] == pytest.approx(1, abs=1e-4)
    assert next(iter(gpu["idle"])) == "data"
    assert gpu["steps"] == {
        "count": 100,
        "median_period_ns": 1_000_000,
        "busy_share": 0.497,
    }
    assert gpu["classes"]["gemm"]["plain_ns"] == 20_000_000
