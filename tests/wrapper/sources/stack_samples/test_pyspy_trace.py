"""py-spy's recordings become stacks on the right threads, at the run's times."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from perfwrap.sources.stack_samples import pyspy_trace
from perfwrap.timeline.builder import TimelineBuilder

SECOND_US, SECOND_NS = 1_000_000, 1_000_000_000
TICKS = 7
NAME = f"here-100-{TICKS}-0.json"


def event(
    phase: str, at_us: int, name: str, file: str = "", line: int = 0, thread: int = 1
) -> dict[str, Any]:
    place = {"filename": file, "line": line}
    return {"args": place, "cat": "py-spy", "name": name, "ph": phase, "pid": 100, "tid": thread, "ts": at_us}


def recording() -> list[dict[str, Any]]:
    """A main thread that is in line 5 for half a second and in line 6 for three."""
    return [
        event("B", 10_000, "thread (100): MainThread"),
        event("B", 10_000, "main", "/home/me/train.py", 5),
        event("E", 510_000, "main", "/home/me/train.py", 5),
        event("B", 510_000, "main", "/home/me/train.py", 6),
        event("E", 3_510_000, "main", "/home/me/train.py", 6),
        event("E", 3_510_000, "thread (100): MainThread"),
    ]


def write(
    run: Any, events: list[dict[str, Any]] | bytes, small: bool = False, end: str | None = None
) -> None:
    """Write a recording that began at the tenth second, and its log."""
    folder = run.folder.py_spy
    folder.mkdir(parents=True, exist_ok=True)
    data = events if isinstance(events, bytes) else json.dumps(events).encode()
    (folder / (NAME + (".gz" if small else ""))).write_bytes(gzip.compress(data) if small else data)
    written = 10 * SECOND_NS + 3_510_000_000 + 4_000_000
    lines = [f"begin\t{NAME}\t100\t{TICKS}\t20.0\t{10 * SECOND_NS}"]
    lines.append(f"end\t{NAME}\t{written}\t0\t" if end is None else end)
    (folder / "here.log").write_text("\n".join(lines) + "\n")


def begin(run: Any) -> Any:
    journal = run.journal(pid=100, ticks=TICKS)
    journal.name_thread(1, "", 100)
    return journal


@pytest.mark.parametrize("small", [False, True])
def test_a_stack_is_on_its_thread_with_the_samples_that_its_time_represents(run: Any, small: bool) -> None:
    begin(run)
    write(run, recording(), small)
    timeline = run.read()
    (thread,) = timeline.tracks.filter(pl.col("kind") == "thread")["id"]
    assert set(timeline.stacks["track"]) == {thread}
    assert set(timeline.stacks["source"]) == {"py-spy"}
    first = timeline.stacks.row(0, named=True)
    # py-spy began within 4 ms after it was started: 2 ms is the best guess.
    assert first["time"] == 10 * SECOND_NS + 2_000_000 + 10_000_000
    assert (first["weight"], first["line"], first["function"]) == (10, 5, "main")
    assert timeline.stacks.filter(pl.col("line") == 6)["weight"].sum() == 60
    note = timeline.coverage.filter(pl.col("what") == "py-spy")["note"][0]
    assert note == "at 20 Hz; its times may be off by 2 ms"


def test_the_main_thread_is_found_where_py_spy_does_not_know_the_systems_id(run: Any) -> None:
    begin(run)
    events = recording()
    for one in (events[0], events[-1]):
        one["name"] = "thread (0x7FEDE70786C0): MainThread"
    write(run, events)
    timeline = run.read()
    (thread,) = timeline.tracks.filter(pl.col("kind") == "thread")["id"]
    assert set(timeline.stacks["track"]) == {thread}


def test_a_stack_seen_once_counts_as_one_sample(run: Any) -> None:
    begin(run)
    write(
        run, [*recording()[:2], event("E", 10_001, "main"), event("B", 10_001, "other", "/home/me/x.py", 1)]
    )
    assert run.read().stacks["weight"].to_list() == [1]


def test_a_stack_without_its_callers_is_left_out_and_counted(run: Any) -> None:
    begin(run)
    torn = [
        event("B", 0, "thread (100): MainThread"),
        event("B", 0, "main", "/home/me/train.py", 5),
        event("B", 0, "<genexpr>", "/home/me/train.py", 7),
        event("E", 50_000, "<genexpr>", "/home/me/train.py", 7),
        event("E", 50_000, "main", "/home/me/train.py", 5),
        event("B", 50_000, "<genexpr>", "/home/me/train.py", 7),
        event("E", 90_000, "<genexpr>", "/home/me/train.py", 7),
        event("E", 90_000, "thread (100): MainThread"),
    ]
    write(run, torn)
    timeline = run.read()
    assert timeline.stacks.height == 1
    assert timeline.stacks["stack"][0].startswith("main ")
    assert timeline.coverage.filter(pl.col("what") == "py-spy")["lost"].to_list() == [1]


def test_a_frame_that_repeats_its_caller_for_the_recorder_is_no_inner_function(run: Any) -> None:
    begin(run)
    script = ("<module>", "/home/me/train.py", 5)
    below = ("wrapper", "<perfwrap importlib._bootstrap>", 3)
    again = ("call_from", "<perfwrap importlib._bootstrap>", 9)
    called = [
        event("B", 0, "thread (100): MainThread"),
        *(event("B", 0, *frame) for frame in (script, below, again, script)),
        *(event("E", 200_000, *frame) for frame in (script, again, below)),
        event("E", 400_000, *script),
        event("E", 400_000, "thread (100): MainThread"),
    ]
    write(run, called)
    timeline = run.read()
    assert timeline.stacks["stack"].to_list() == ["<module> (/home/me/train.py:5)"] * 2
    assert timeline.stacks["weight"].to_list() == [4, 4]
    assert timeline.coverage.filter(pl.col("what") == "py-spy")["lost"].to_list() == [0]


def test_a_recording_without_an_end_says_so(run: Any) -> None:
    begin(run)
    write(run, recording(), end="")
    timeline = run.read()
    assert timeline.stacks["time"][0] == 10 * SECOND_NS + 10_000_000
    assert "its end was not recorded" in timeline.coverage.filter(pl.col("what") == "py-spy")["note"][0]


def test_a_process_that_could_not_be_sampled_is_a_warning(run: Any) -> None:
    begin(run)
    write(run, recording(), end=f"end\t{NAME}\t0\t256\tError: Failed to find python version")
    (run.folder.py_spy / NAME).unlink()
    timeline = run.read()
    assert timeline.stacks.is_empty()
    assert "py-spy did not sample process 100: Error: Failed to find python version." in timeline.warnings


def test_relative_names_are_those_of_files_where_the_command_was_started(run: Any) -> None:
    begin(run)
    run.folder.write_manifest({"command": [], "cwd": "/work"})
    write(
        run,
        [event("B", 0, "thread (100): MainThread"), event("B", 0, "f", "./train.py", 3), event("E", 9, "f")],
    )
    assert run.read().stacks["file"].to_list() == ["/work/train.py"]


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"[",
        b"{}",
        b"[1, 2]",
        b'[{"ph": "B"}]',
        b'[{"ph": "B", "ts": "x"}]',
        json.dumps(recording()).encode()[:200],
        b"\xff\xfe\x00",
    ],
)
def test_a_damaged_recording_costs_only_itself(run: Any, damaged: bytes) -> None:
    begin(run)
    write(run, damaged)
    timeline = run.read()
    assert timeline.stacks.is_empty()
    assert timeline.tracks.height


def test_odd_events_of_other_tools_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    odd = [
        {"ph": "B", "ts": 0, "cat": "py-spy", "args": 3, "name": None, "pid": "x"},
        {"ph": "B", "ts": 1, "args": {"filename": 5, "line": 1 << 80}, "name": "f"},
        {"ph": "E", "ts": 2},
        {"ph": "E", "ts": 3},
        {"ph": "E", "ts": 4},
        {"ph": "B", "ts": 1 << 90},
    ]
    path.write_text(json.dumps(odd))
    builder = TimelineBuilder()
    pyspy_trace.add(builder, path)
    assert builder.build({}).stacks.height == 1


def test_a_recording_of_another_tool_is_recognised_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "any name"
    path.write_text(json.dumps(recording()))
    assert pyspy_trace.recognises(path, path.read_bytes()[:4096])
    assert not pyspy_trace.recognises(path, b'[{"ph": "X", "cat": "cpu_op"}]')
    builder = TimelineBuilder()
    pyspy_trace.add(builder, path)
    timeline = builder.build({})
    assert timeline.stacks["weight"].sum() == 350
    assert "its times start at 0" in timeline.warnings[0]
