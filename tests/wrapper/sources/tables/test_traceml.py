from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.sources.tables.traceml import add, recognises
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.model import Timeline

END = 1_767_268_800 * 10**9


def row(rank: int, **metrics: object) -> dict[str, Any]:
    return {"identity": {"global_rank": rank, "hostname": "node-a"}, "metrics": metrics}


def summary() -> dict[str, Any]:
    """Return a summary as schema 1.7 describes it, of two ranks."""
    ranks = {
        "0": row(0, step_time_ms=240.0, input_wait_ms=80.0, h2d_ms=None, forward_ms=50.0, backward_ms=70.0),
        "1": row(1, step_time_ms=250.0, input_wait_ms=90.0, h2d_ms=0.4, forward_ms=50.0, backward_ms=70.0),
    }
    node = {"0": {"identity": {"node_rank": 0, "hostname": "node-a"}, "metrics": {"gpu_util_percent": 37.8}}}
    window = {"kind": "step_window", "steps_analyzed": 256}
    return {
        "schema_version": 1.7,
        "generated_at": "2026-01-01T12:00:00Z",
        "duration_s": 120.0,
        "meta": {"world_size": 2},
        "primary_diagnosis": {"status": "INPUT-BOUND", "summary": "Input takes a third of the step."},
        "system": {"groups": {"by": "node_rank", "rows": node}},
        "process": {"groups": {"by": "global_rank", "rows": {"0": row(0, ram_bytes=2e9)}}},
        "step_time": {"global": {"window": window}, "groups": {"by": "global_rank", "rows": ranks}},
        "step_memory": {},
        "text": "TraceML Verdict",
    }


def read(tmp_path: Path, content: object) -> Timeline:
    path = tmp_path / "final_summary.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))
    builder = TimelineBuilder()
    add(builder, path)
    return builder.build({})


def test_what_the_phases_took_becomes_sums_of_each_rank(tmp_path: Path) -> None:
    timeline = read(tmp_path, summary())
    processes = timeline.tracks.filter(pl.col("kind") == "process")
    assert processes["rank"].to_list() == [0, 1]
    assert processes["host"].unique().to_list() == ["node-a"]
    threads = timeline.tracks.filter(pl.col("kind") == "thread")["id"].to_list()
    first = timeline.sums.filter(pl.col("track") == threads[0])
    reported = dict(first.select("operation", "duration").iter_rows())
    assert reported == {"data": 256 * 80_000_000, "forward": 256 * 50_000_000, "backward": 256 * 70_000_000}
    assert first["count"].unique().to_list() == [256]
    assert (first["start"][0], first["end"][0]) == (END - 120 * 10**9, END)


def test_everything_else_is_a_fact_and_what_was_not_measured_is_none(tmp_path: Path) -> None:
    timeline = read(tmp_path, summary())
    facts = dict(timeline.facts.select("key", "value").iter_rows())
    assert facts["traceml/system/gpu_util_percent"] == "37.8"
    assert facts["traceml/process/ram_bytes"] == "2e+09"
    hosts = timeline.facts.filter(pl.col("key") == "traceml/step_time/h2d_ms")
    assert hosts["value"].to_list() == ["0.4"]


def test_its_own_conclusion_is_reported_and_not_judged_again(tmp_path: Path) -> None:
    timeline = read(tmp_path, summary())
    assert timeline.marks["detail"].to_list() == ["INPUT-BOUND: Input takes a third of the step."]
    assert any("INPUT-BOUND" in text for text in timeline.warnings)
    assert diagnose(timeline).verdict.id == "unknown"


def test_it_is_recognised_by_its_content_alone(tmp_path: Path) -> None:
    head = json.dumps(summary(), indent=2).encode()[:4096]
    assert recognises(tmp_path / "anything.bin", head)
    assert recognises(tmp_path / "x", b"\xef\xbb\xbf" + head)
    manifest = {"schema_version": 1, "generated_at": "2026-01-01T12:00:00Z", "session_id": "a"}
    assert not recognises(tmp_path / "final_summary.json", json.dumps(manifest).encode())
    assert not recognises(tmp_path / "trace.json", b'{"schemaVersion": 1, "traceEvents": []}')
    assert not recognises(tmp_path / "empty", b"")


@pytest.mark.parametrize("percent", range(0, 100, 7))
def test_a_file_that_is_cut_short_is_a_warning(tmp_path: Path, percent: int) -> None:
    whole = json.dumps(summary(), indent=2)
    timeline = read(tmp_path, whole[: len(whole) * percent // 100])
    assert timeline.facts.is_empty()
    assert any("truncated" in text for text in timeline.warnings)


@pytest.mark.parametrize(
    "strange", [None, 7, "words", [], [1], {"rows": 3}, {"groups": {"rows": {"0": None}}}, 1e300]
)
@pytest.mark.parametrize("key", list(summary()))
def test_parts_of_another_kind_cost_only_themselves(tmp_path: Path, key: str, strange: object) -> None:
    timeline = read(tmp_path, {**summary(), key: strange})
    assert any("only averages" in text for text in timeline.warnings)


@pytest.mark.parametrize("text", ["[1, 2]", "null", "[" * 100_000, '{"schema_version": NaN}'])
def test_hostile_documents_are_no_traceback(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).warnings


def test_numbers_that_are_none_are_left_out(tmp_path: Path) -> None:
    content = summary()
    content["step_time"]["groups"]["rows"]["0"]["metrics"].update(
        forward_ms=float("nan"), backward_ms=True, step_time_ms="12", input_wait_ms=-0.0
    )
    timeline = read(tmp_path, content)
    rank = timeline.tracks.filter(pl.col("rank") == 0, pl.col("kind") == "process")["id"][0]
    keys = timeline.facts.filter(pl.col("track") == rank)["key"].to_list()
    assert not {"traceml/step_time/forward_ms", "traceml/step_time/backward_ms"} & set(keys)
    assert "traceml/step_time/step_time_ms" not in keys
