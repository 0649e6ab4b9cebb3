"""speedscope's files become stacks, from every writer and with any damage."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perfwrap.sources.stack_samples import speedscope
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.model import Timeline

SHARED = Path(
    os.environ.get("PERFWRAP_SHARED_DATA") or Path(__file__).resolve().parents[5] / "shared" / "data"
)
SCHEMA = "https://www.speedscope.app/file-format-schema.json"
FRAMES = [{"name": "main", "file": "/home/me/train.py", "line": 3}, {"name": "work", "file": "/home/me/a.py"}]


def content(*profiles: object) -> dict[str, Any]:
    return {
        "$schema": SCHEMA,
        "shared": {"frames": FRAMES},
        "profiles": list(profiles),
        "exporter": "py-spy@0.4.1",
    }


def sampled(**more: object) -> dict[str, Any]:
    known = {
        "type": "sampled",
        "name": 'Thread 123 "MainThread"',
        "unit": "seconds",
        "startValue": 0.0,
        "samples": [[0], [0, 1], [0, 1], []],
        "weights": [0.01, 0.01, 0.01, 0.01],
    }
    return {**known, **more}


def read(path: Path, data: object) -> Timeline:
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    builder = TimelineBuilder()
    speedscope.add(builder, path)
    return builder.build({})


def test_each_sample_is_a_stack_on_its_thread(tmp_path: Path) -> None:
    timeline = read(tmp_path / "x", content(sampled()))
    assert timeline.stacks["time"].to_list() == [0, 10_000_000, 20_000_000]
    assert timeline.stacks["function"].to_list() == ["main", "work", "work"]
    assert timeline.stacks["stack"][1] == "main (/home/me/train.py:3);work (/home/me/a.py:0)"
    (thread,) = timeline.tracks.filter(pl.col("kind") == "thread").rows(named=True)
    assert (thread["name"], thread["tid"]) == ("MainThread", 123)
    assert "may be off by seconds" in timeline.warnings[0]


def test_calls_that_open_and_close_become_stretches(tmp_path: Path) -> None:
    events = [("O", 0, 5), ("O", 1, 6), ("C", 1, 8), ("C", 0, 9)]
    profile = {
        "type": "evented",
        "name": "x",
        "unit": "milliseconds",
        "startValue": 5,
        "endValue": 9,
        "events": [{"type": kind, "frame": frame, "at": at} for kind, frame, at in events],
    }
    timeline = read(tmp_path / "x", content(profile))
    assert timeline.stacks["time"].to_list() == [0, 1_000_000, 3_000_000]
    assert timeline.stacks["weight"].to_list() == [1, 2, 1]


@pytest.mark.parametrize(
    "damage",
    [
        {"samples": [[7]], "weights": [1]},
        {"samples": [[-1]], "weights": [1]},
        {"samples": [[0]], "weights": []},
        {"samples": [["a"]], "weights": [1]},
        {"samples": 3},
        {"type": "other"},
        {"startValue": "x"},
        {"weights": [float("inf")] * 4},
        {"weights": [1e300] * 4},
    ],
)
def test_a_damaged_profile_costs_only_itself(tmp_path: Path, damage: dict[str, Any]) -> None:
    timeline = read(tmp_path / "x", content(sampled(**damage), sampled()))
    assert timeline.stacks.height == 3
    assert "Profile 1 of x was skipped" in timeline.warnings[0]


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 400), junk=st.binary(max_size=8))
def test_truncated_and_spoilt_files_are_borne(
    tmp_path_factory: pytest.TempPathFactory, cut: int, junk: bytes
) -> None:
    data = json.dumps(content(sampled())).encode()
    timeline = read(tmp_path_factory.mktemp("spoilt") / "x", data[:cut] + junk + data[cut + len(junk) :])
    assert timeline.warnings


def test_it_is_recognised_by_its_content(tmp_path: Path) -> None:
    head = json.dumps(content()).encode()
    assert speedscope.recognises(tmp_path / "x", head)
    assert not speedscope.recognises(tmp_path / "x.speedscope.json", b'{"traceEvents": []}')


def test_a_real_recording_is_read_whole() -> None:
    path = SHARED / "pyspy" / "bpe_training_multithread_speedscope.json"
    if not path.is_file():
        pytest.skip(f"there is no {path}")
    assert speedscope.recognises(path, path.read_bytes()[:4096])
    builder = TimelineBuilder()
    speedscope.add(builder, path)
    timeline = builder.build({})
    profiles = json.loads(path.read_bytes())["profiles"]
    assert timeline.stacks["weight"].sum() == sum(len(profile["samples"]) for profile in profiles)
    names = timeline.tracks.filter(pl.col("kind") == "thread")["name"]
    assert set(names) == {profile["name"].split('"')[1] for profile in profiles}
