"""The nsys source over real captures of other people's: what was counted by other means comes out again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from perfwrap.sources.nsys import nsys_export
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.model import Timeline

BESIDE = Path(__file__).resolve().parents[4] / "shared" / "data"
SHARED = Path(os.environ.get("PERFWRAP_SHARED_DATA", BESIDE))
FACTS = json.loads((SHARED / "facts.json").read_text()) if (SHARED / "facts.json").exists() else {}
CAPTURES = sorted(name for name in FACTS if name.startswith("nsys/") and ".sqlite" in name)
RANGES = ("nvtx", "op", "step", "data", "forward", "backward", "optimizer", "zero_grad")
TOLERANCE = 0.005

pytestmark = pytest.mark.skipif(not CAPTURES, reason=f"no recordings at {SHARED}; set PERFWRAP_SHARED_DATA")


def read(name: str) -> Timeline:
    """Return the timeline of one capture."""
    builder = TimelineBuilder()
    nsys_export.add(builder, SHARED / name)
    return builder.build({})


@pytest.fixture(params=CAPTURES, ids=lambda name: Path(name).name.removesuffix(".sqlite.gz"))
def capture(request: pytest.FixtureRequest) -> tuple[Timeline, dict[str, Any]]:
    return read(request.param), FACTS[request.param]["facts"]


def about(expected: float) -> Any:
    """Return what equals a figure within the tolerance; figures are written in thousandths."""
    return pytest.approx(expected, rel=TOLERANCE, abs=0.001)


def test_counts_times_and_bytes_are_those_that_were_measured(
    capture: tuple[Timeline, dict[str, Any]],
) -> None:
    timeline, facts = capture
    spans = timeline.spans
    kernels = spans.filter(pl.col("category") == "kernel")
    assert kernels.height == facts["kernels"]
    assert kernels["duration"].sum() / 1e6 == about(facts["kernel_time_ms"])
    assert spans.filter(pl.col("category") == "memset").height == facts["memsets"]
    copies = spans.filter(pl.col("category") == "copy")
    assert copies.height == facts["memcpys"]
    for direction, expected in facts["memcpy"].items():
        own = copies.filter(pl.col("operation") == direction.lower())
        assert (own.height, own["value"].sum()) == (expected["n"], expected["bytes"])
        assert own["duration"].sum() / 1e6 == about(expected["ms"])
    calls = spans.filter(pl.col("category") == "other", pl.col("link").is_not_null())
    assert calls.height == facts["runtime_calls"]
    assert calls.filter(pl.col("name").str.contains("LaunchKernel")).height == facts["cuda_launch_calls"]
    ranges = spans.filter(pl.col("operation").is_in(RANGES))
    assert ranges.height == facts.get("nvtx_ranges", 0)


def test_the_window_and_the_busy_time_of_the_gpus_are_those_that_were_measured(
    capture: tuple[Timeline, dict[str, Any]],
) -> None:
    timeline, facts = capture
    work = timeline.spans.filter(pl.col("category").cast(pl.String).is_in(["kernel", "copy", "memset"]))
    end = pl.col("start") + pl.col("duration")
    assert (work.select(end.max()).item() - work["start"].min()) / 1e6 == about(facts["gpu_window_ms"])
    before = end.cum_max().shift(1).fill_null(0)
    busy = work.select((end - pl.max_horizontal("start", before)).clip(lower_bound=0).sum()).item()
    assert busy / 1e6 == about(facts["gpu_busy_ms"])


def test_steps_are_found_with_their_periods(capture: tuple[Timeline, dict[str, Any]]) -> None:
    timeline, facts = capture
    steps = timeline.spans.filter(pl.col("category") == "step")
    expected = facts.get("steps")
    if expected is None:
        assert steps.height == 0
        return
    periods = steps["start"].diff().drop_nulls() / 1e6
    assert steps.height == expected["n"]
    assert steps["step"].diff().drop_nulls().unique().to_list() == [1]
    assert periods.median() == about(expected["median_period_ms"])
    assert periods.mean() == about(expected["mean_period_ms"])
    assert steps["duration"].median() / 1e6 == about(expected["median_range_ms"])  # type: ignore[operator]


def test_kernels_are_linked_to_calls_of_their_own_process(capture: tuple[Timeline, dict[str, Any]]) -> None:
    timeline, facts = capture
    if not facts["kernels"]:
        pytest.skip("no kernels in this capture")
    pids = timeline.tracks.select("id", "pid")
    spans = timeline.spans.join(pids, left_on="track", right_on="id")
    kernels = spans.filter(pl.col("category") == "kernel").select("link", "pid", "start")
    calls = spans.filter(pl.col("category") == "other", pl.col("link").is_not_null())
    pairs = kernels.join(calls.select("link", "pid", "start"), on="link", suffix="_call")
    assert pairs.height > 0.95 * kernels.height
    assert (pairs["pid"] == pairs["pid_call"]).all()
    is_off = timeline.coverage.filter(pl.col("what") == "gpu_clock").height > 0
    assert (pairs["start"] < pairs["start_call"]).any() == is_off


def test_one_report_exported_by_three_versions_of_nsys_is_one_timeline() -> None:
    names = [name for name in CAPTURES if "nobroadcast" in name]
    assert len(names) == 3
    first, *others = [read(name) for name in names]
    for other in others:
        assert other.spans.equals(first.spans)
        assert other.tracks.equals(first.tracks)
        assert other.marks.equals(first.marks)
        lost = pl.col("lost") > 0
        kept = ["what", "start", "end", "lost"]
        assert other.coverage.filter(lost).select(kept).equals(first.coverage.filter(lost).select(kept))


def test_recordings_are_recognised_and_reports_of_nsys_too() -> None:
    for path in (SHARED / "nsys").iterdir():
        with path.open("rb") as file:
            head = file.read(4096)
        is_ours = ".sqlite" in path.name or path.suffix == ".nsys-rep"
        assert nsys_export.recognises(path, head) == is_ours, path.name
