"""The roofline: what limits each kernel that ncu measured."""

from __future__ import annotations

import json

import pytest
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.roofline import roofline
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.model import Timeline


def timeline(*kernels: dict[str, object]) -> Timeline:
    """Return a timeline in which ncu measured these."""
    builder = TimelineBuilder()
    for kernel in kernels:
        detail = json.dumps({"kernel": "gemm", "duration_ns": 100, **kernel})
        builder.add_row("marks", time=0, track=builder.host("h"), name="ncu", detail=detail, source="ncu")
    return builder.build({})


@pytest.mark.parametrize(
    ("compute", "memory", "bound"),
    [
        (0.37, 0.89, "memory"),
        (0.70, 0.22, "compute"),
        (0.85, 0.80, "balanced"),
        (0.59, 0.20, "latency"),
        (0.05, 0.59, "latency"),
        (None, 0.90, None),
        (0.90, None, None),
    ],
)
def test_a_kernel_is_limited_by_what_it_uses_most_of(compute: float, memory: float, bound: str) -> None:
    found = roofline(Evidence(timeline({"compute_share": compute, "memory_share": memory})))
    assert found["bound"].to_list() == [bound]


def test_launches_of_a_kernel_are_one_row_weighted_by_their_time() -> None:
    found = roofline(
        Evidence(
            timeline(
                {"duration_ns": 300, "memory_share": 0.8, "stall": "wait"},
                {"duration_ns": 100, "memory_share": 0.4, "stall": "drain"},
                {"kernel": "add", "duration_ns": 900, "memory_share": None},
            )
        )
    )
    assert found["kernel"].to_list() == ["add", "gemm"]
    assert found["launches"].to_list() == [1, 2]
    assert found["duration_ns"].to_list() == [900, 400]
    assert found["memory_share"].to_list() == [None, pytest.approx(0.7)]
    assert found["stall"].to_list() == [None, "wait"]


@pytest.mark.parametrize(("share", "uses"), [(0.4, True), (0.03, False), (None, None)])
def test_tensor_cores_are_used_from_a_share_on_that_nothing_else_reaches(share: float, uses: bool) -> None:
    assert roofline(Evidence(timeline({"tensor_share": share})))["uses_tensor_cores"].to_list() == [uses]


def test_without_ncu_there_is_nothing() -> None:
    assert roofline(Evidence(TimelineBuilder().build({}))).height == 0
