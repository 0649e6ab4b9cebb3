from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.reports import trace
from perfwrap.sources import files
from perfwrap.timeline.model import Timeline

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
NEEDED = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur"},
    "C": {"name", "pid", "ts", "args"},
    "i": {"name", "pid", "tid", "ts", "s"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
    "M": {"name", "pid", "args"},
}
MS = 1_000_000


def problems(document: dict[str, Any]) -> list[str]:
    """Return what breaks the rules of the Trace Event Format, so that a viewer would drop or misplace it."""
    events, found = document["traceEvents"], []
    latest: dict[tuple[int, int], float] = defaultdict(float)
    open_ends: dict[tuple[int, int], list[int]] = defaultdict(list)
    flows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    named: set[tuple[str, int, int | None]] = set()
    for event in events:
        missing = NEEDED.get(event["ph"], {"a known phase"}) - set(event)
        if missing:
            found.append(f"{event} lacks {missing}")
            continue
        if event["ph"] == "M":
            named.add((event["name"], event["pid"], event.get("tid")))
            continue
        place = event["pid"], event.get("tid", 0)
        if event["ts"] < latest[place] or event["ts"] < 0:
            found.append(f"{event} comes too late")
        latest[place] = event["ts"]
        if event["ph"] == "X":
            start = round(event["ts"] * 1000)
            end = start + round(event["dur"] * 1000)
            ends = open_ends[place]
            while ends and ends[-1] <= start:
                ends.pop()
            if ends and end > ends[-1]:
                found.append(f"{event} does not nest")
            ends.append(end)
        elif event["ph"] in "sf":
            flows[event["id"]].append(event)
        elif event["ph"] == "C" and not all(
            isinstance(value, (int, float)) or value is None for value in event["args"].values()
        ):
            found.append(f"{event} counts no numbers")
    for ends_of_flow in flows.values():
        if [event["ph"] for event in ends_of_flow] != ["s", "f"]:
            found.append(f"{ends_of_flow} is no flow from one end to the other")
    for event in events:
        if ("process_name", event["pid"], None) not in named:
            found.append(f"the process of {event} has no name")
        if "tid" in event and ("thread_name", event["pid"], event["tid"]) not in named:
            found.append(f"the thread of {event} has no name")
    return found


def drawn(timeline: Timeline, tmp_path: Path, **limits: int) -> tuple[dict[str, Any], trace.Written]:
    path = tmp_path / "trace.json.gz"
    written = trace.write(diagnose(timeline), timeline, path, **limits)
    assert [entry.name for entry in tmp_path.glob("*trace.json*")] == [path.name]
    return json.loads(gzip.decompress(path.read_bytes())), written


def of_phase(document: dict[str, Any], phase: str) -> list[dict[str, Any]]:
    return [event for event in document["traceEvents"] if event["ph"] == phase]


def test_the_validator_sees_what_is_wrong() -> None:
    slice_ = {"ph": "X", "name": "a", "cat": "b", "pid": 1, "tid": 1, "ts": 0.0, "dur": 2.0}
    wrong = [
        slice_,
        {**slice_, "ts": 1.0, "dur": 5.0},
        {**slice_, "ts": 0.5, "dur": 0.1},
        {"ph": "X", "pid": 1},
    ]
    wrong.append({"ph": "s", "name": "a", "cat": "b", "id": 1, "pid": 1, "tid": 1, "ts": 9.0})
    found = "\n".join(problems({"traceEvents": wrong}))
    for words in ("does not nest", "too late", "lacks", "no flow", "has no name"):
        assert words in found


def test_a_recorded_run_is_drawn_with_steps_findings_counters_and_names(
    recorded_document: Any, tmp_path: Path
) -> None:
    from perfwrap.analysis.run_reader import read_timeline
    from perfwrap.run_folder import RunFolder

    document, written = drawn(read_timeline(RunFolder(recorded_document.folder())), tmp_path)
    assert problems(document) == []
    assert written.left_out_spans == 0
    slices = of_phase(document, "X")
    assert len([event for event in slices if event["cat"] == "step"]) == 80
    (finding,) = {event["name"] for event in slices if event["cat"] == "finding"}
    assert finding == "data_loader_single_process"
    assert {event["name"] for event in of_phase(document, "C")} == {"cpu_cores_busy", "cpu_cores"}
    names = {event["args"]["name"] for event in of_phase(document, "M") if event["name"] == "process_name"}
    assert names == {"main 100", "host here"}


def test_a_launch_has_an_arrow_to_its_kernel(recording: Any, tmp_path: Path) -> None:
    for start in range(0, 1_000, 100):
        recording.work(start, 60, launched=start - 5)
    recording.work(2_000, 10)  # whose launch was lost
    document, written = drawn(recording.build(), tmp_path)
    assert problems(document) == []
    assert written.flows == 10
    arrows = {phase: {event["id"]: event["ts"] for event in of_phase(document, phase)} for phase in "sf"}
    assert all(arrows["f"][number] == begun + 5 for number, begun in arrows["s"].items())


def test_spans_that_overlap_without_nesting_get_a_lane_of_their_own(recording: Any, tmp_path: Path) -> None:
    recording.host(0, 100, "op", name="first")
    recording.host(50, 100, "op", name="second")
    recording.host(60, 10, "op", name="inside both")
    document, _ = drawn(recording.build(), tmp_path)
    assert problems(document) == []
    places = {event["name"]: event["tid"] for event in of_phase(document, "X")}
    assert places["first"] != places["second"]
    assert places["inside both"] == places["first"]


def test_a_trace_is_bounded_and_keeps_what_lasted_longest(recording: Any, tmp_path: Path) -> None:
    for start in range(500):
        recording.host(start * 10, 1 + start / 100, "op")
    document, written = drawn(recording.build(), tmp_path, most_spans=100)
    assert problems(document) == []
    assert (written.spans, written.left_out_spans) == (100, 400)
    assert document["otherData"]["spans_left_out"] == 400
    assert min(event["dur"] for event in of_phase(document, "X") if event["cat"] == "other") >= 5


def test_processes_of_two_hosts_with_one_number_stay_apart(make_run: Any, tmp_path: Path) -> None:
    run = make_run()
    for host in ("one", "two"):
        journal = run.journal(host=host)
        for _ in range(3):
            journal.step()
    document, _ = drawn(run.read(), tmp_path)
    assert problems(document) == []
    assert len({event["pid"] for event in of_phase(document, "X")}) == 2


def test_names_cannot_break_the_file(make_run: Any, tmp_path: Path) -> None:
    run = make_run()
    journal = run.journal()
    journal.forward(10, name='a"\n\u202e\x00')
    journal.describe("MARK", "odd \x1b mark")
    document, _ = drawn(run.read(), tmp_path)
    assert problems(document) == []
    assert all(event["name"].isprintable() for event in document["traceEvents"])


def test_an_empty_timeline_is_a_trace_too(tmp_path: Path) -> None:
    document, _ = drawn(Timeline(), tmp_path)
    assert document["traceEvents"] == []


def test_a_torch_profilers_trace_is_drawn(tmp_path: Path) -> None:
    timeline, _ = files.read((SAMPLES / "kineto" / "cpu_training.json.gz",), {"imported": True})
    document, written = drawn(timeline, tmp_path)
    assert problems(document) == []
    assert written.spans > 100


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        trace.write(diagnose(Timeline()), Timeline(), tmp_path / "gone" / "trace.json.gz")
    (tmp_path / "trace.json.gz").mkdir()
    with pytest.raises(OSError):
        trace.write(diagnose(Timeline()), Timeline(), tmp_path / "trace.json.gz")
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace.json.gz"]
