"""Of a very large recording one stretch of time is read, as if it had been started later and stopped earlier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfwrap.sources.kineto import trace_events
from perfwrap.sources.nsys import nsys_export
from perfwrap.sources.time_part import middle

from tests.wrapper.sources.nsys.test_nsys_export import Export
from tests.wrapper.sources.nsys.test_nsys_export import read as read_export
from tests.wrapper.sources.traces import Event, lasting, launched, written
from tests.wrapper.sources.traces import read as read_trace

STEPS, MOST = 40, 60


def trace_of(numbers: range) -> list[Event]:
    """Return the events of some steps of 1 ms with three functions, a kernel, a wait and a value in each."""
    events: list[Event] = []
    for number in numbers:
        at = 1_000 * number + 1
        shape: dict[str, Any] = {
            "Input Dims": [[8, number + 1], [number + 1, 8]],
            "Input type": ["float", "float"],
        }
        events += [
            lasting("user_annotation", f"ProfilerStep#{number}", at, 900),
            lasting("cpu_op", "aten::mm", at + 10, 100, **shape),
            lasting("cuda_runtime", "cudaLaunchKernel", at + 20, 10, correlation=number + 1),
            launched("gemm", at + 200, 300, number + 1),
            {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": number, "pid": 7, "tid": 7, "ts": at + 10},
            {"ph": "C", "name": "GPU 0 Utilization", "pid": 0, "ts": at + 5, "args": {"value": number}},
        ]
    return events


def test_a_part_of_a_trace_is_read_like_a_trace_of_only_that_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("whole", "only"):
        (tmp_path / folder).mkdir()
    events = trace_of(range(STEPS))
    monkeypatch.setattr(trace_events, "MAX_EVENTS", MOST)
    part = read_trace(written(tmp_path / "whole" / "t.json", events))
    first, last = part.spans["start"][0] // 1_000, part.spans["start"][-1] // 1_000
    inside = [event for event in events if first <= event["ts"] <= last]
    monkeypatch.undo()
    only = read_trace(written(tmp_path / "only" / "t.json", inside))
    traced = pl.col("operation").is_in(["step", "op", "cudaLaunchKernel", "kernel"])
    assert MOST <= part.spans.filter(traced).height + part.samples.height <= MOST + 1
    steps = part.spans.filter(pl.col("operation") == "step")["step"].to_list()
    assert steps == list(range(steps[0], steps[-1] + 1))
    assert steps[0] == pytest.approx(STEPS - 1 - steps[-1], abs=1)
    for table in ("spans", "samples", "marks", "tracks"):
        assert getattr(part, table).equals(getattr(only, table)), table
    assert only.warnings == ()
    (warning,) = part.warnings
    assert "so only those from second 0.0 to 0.0 of its 0.0 s were read" in warning
    assert part.coverage.filter(what="trace")["note"].str.contains("were read").all()


def test_a_trace_with_as_many_events_as_are_allowed_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_events, "MAX_EVENTS", 5 * STEPS)
    timeline = read_trace(written(tmp_path / "t.json", trace_of(range(STEPS))))
    assert timeline.warnings == ()
    assert timeline.spans.filter(pl.col("operation") == "step").height == STEPS


def test_events_that_all_start_together_stay_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_events, "MAX_EVENTS", MOST)
    path = written(tmp_path / "t.json", [lasting("cpu_op", "aten::mm", 5, 1) for _ in range(10 * MOST)])
    assert read_trace(path).spans.filter(pl.col("operation") == "op").height == MOST


def steps_of(export: Export, numbers: range, first: int = 0) -> None:
    """Add some steps of 1 ms with a range, a launch and a kernel."""
    for number in numbers:
        at = 1_000_000 * number
        export.nvtx(at, at + 900_000, f"step {number}")
        export.kernel(at + 20_000, at + 500_000, export.call(at + 5_000, at + 9_000), "gemm")


def test_a_part_of_an_export_is_read_around_the_middle_of_its_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = Export(tmp_path / "report.sqlite")
    for number in range(300):
        export.call(number - 1_000, number - 999, "cudaMalloc_v3020")
    export.nvtx(-2_000, None, "mine", eventType=75, domainId=3)
    steps_of(export, range(STEPS))
    export.nvtx(20_100_000, 20_200_000, "of the domain", domainId=3)
    path = export.write()
    whole = read_export(path)
    monkeypatch.setattr(nsys_export, "MAX_EVENTS", MOST)
    part = read_export(path)
    first, last = (
        value.item() for value in part.spans.select(pl.col("start").min(), pl.col("start").max().alias("x"))
    )
    inside = whole.spans.filter(pl.col("start").is_between(first, last))
    columns = ["start", "duration", "name", "category", "operation", "step", "value"]
    assert part.spans.select(columns).equals(inside.select(columns))
    assert MOST - 3 <= part.spans.height <= MOST + 3
    kernels = part.spans.filter(pl.col("category") == "kernel")["start"]
    assert kernels.len() == pytest.approx(20, abs=1)
    everything = whole.spans.filter(pl.col("category") == "kernel")["start"]
    assert float(kernels.median() or 0) == pytest.approx(float(everything.median() or 0), abs=2_000_000)
    assert "of the domain" in part.spans["name"]
    assert any("were read" in warning for warning in part.warnings)
    assert part.coverage.filter(pl.col("note").str.contains("were read")).height == 1
    assert whole.warnings == ()


def test_work_that_runs_after_the_part_is_not_called_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = Export(tmp_path / "report.sqlite")
    for number in range(200):
        export.kernel(
            1_000 * number + 50_000, 1_000 * number + 50_900, export.call(1_000 * number, 1_000 * number + 9)
        )
    path = export.write()
    assert read_export(path).coverage.filter(pl.col("lost") > 0).is_empty()
    monkeypatch.setattr(nsys_export, "MAX_EVENTS", 200)
    part = read_export(path)
    assert part.spans.height < 250
    assert part.coverage.filter(pl.col("lost") > 0).is_empty()
    assert not any("lost" in warning for warning in part.warnings)


@given(
    st.lists(st.integers(-(2**60), 2**60), min_size=3, max_size=50),
    st.integers(1, 40),
    st.none() | st.integers(-(2**60), 2**60),
)
def test_a_part_holds_as_many_events_as_asked_for(starts: list[int], most: int, around: int | None) -> None:
    moments = np.array(starts, dtype=np.int64)
    most = min(most, moments.size - 1)
    part = middle(moments, np.ones(moments.size), most, around)
    inside = int(np.count_nonzero((moments >= part.start) & (moments < part.end)))
    same = int(np.unique(moments, return_counts=True)[1].max())
    assert most <= inside <= most + 2 * same
    assert (part.first, part.last, part.events) == (min(starts), max(starts), len(starts))
    if around is not None and min(starts) <= around <= max(starts) and same == 1:
        nearest = int(moments[np.abs(moments.astype(object) - around).argmin()])
        at_an_end = part.start == min(starts) or part.end > max(starts)
        assert part.start <= nearest <= part.end or at_an_end
