"""Measurements of ncu are reported by kernel, with its limit."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.reports import json as json_report
from perfwrap.timeline.builder import TimelineBuilder

Draw = Callable[..., str]


@pytest.fixture
def measured() -> Diagnosis:
    """Two kernels, one of them with a long name."""
    builder = TimelineBuilder()
    for kernel in (
        {"kernel": "void silu(float *)", "duration_ns": 2_000, "compute_share": 0.37, "memory_share": 0.89},
        {"kernel": "gemm" * 30 + "(int)", "duration_ns": 1_000, "compute_share": 0.1, "memory_share": 0.2},
    ):
        builder.add_row(
            "marks", time=0, track=builder.host("h"), name="ncu", detail=json.dumps(kernel), source="ncu"
        )
    return diagnose(builder.build({}))


def test_each_kernel_is_reported_with_its_limit(measured: Diagnosis, drawn: Draw) -> None:
    lines = [line.strip() for line in drawn(measured).splitlines()]
    assert "silu: limited by memory bandwidth" in lines
    assert "compute 37 %, memory 89 %, 2 µs in 1 launch" in lines


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(measured: Diagnosis, drawn: Draw, width: int) -> None:
    assert max(len(line) for line in drawn(measured, width).splitlines()) <= width


def test_programs_read_the_same(measured: Diagnosis) -> None:
    kernels = json_report.document(measured)["kernels"]
    assert [(kernel["bound"], kernel["launches"]) for kernel in kernels] == [("memory", 1), ("latency", 1)]
