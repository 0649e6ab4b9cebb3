"""Traces are read piece by piece, and whatever is wrong with one costs only what is wrong."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from perfwrap.sources.kineto import kineto_trace, trace_file
from perfwrap.sources.kineto.trace_events import nanoseconds
from perfwrap.sources.kineto.trace_file import TraceFile

from tests.wrapper.sources.traces import SAMPLE, lasting, launched, read, written

PLAIN = gzip.decompress(SAMPLE.read_bytes())


def names(path: Path) -> list[object]:
    """Return the names of all events that can be read."""
    return [event.name for piece in TraceFile(path).pieces() for event in piece]


def test_pieces_of_any_size_give_the_same_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = names(SAMPLE)
    assert len(whole) == len(json.loads(PLAIN)["traceEvents"])
    for size in (100, 1_000, 77_777):
        monkeypatch.setattr(trace_file, "PIECE", size)
        assert names(SAMPLE) == whole


@pytest.mark.parametrize(
    "name", ['a "quoted" name', "back\\slash\\", "},{", "[{]}", '\\"},\n{"', "ünï\u2028code"]
)
def test_names_that_look_like_structure_are_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = written(tmp_path / "t.json", [lasting("cpu_op", name, at, 1) for at in range(9)])
    for size in (5, 64, 1 << 20):
        monkeypatch.setattr(trace_file, "PIECE", size)
        assert names(path) == [name] * 9


def test_a_bare_list_of_events_is_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("\n" + json.dumps([lasting("Operator", "aten::mm", 1, 2)]))
    assert kineto_trace.recognises(path, path.read_bytes())
    assert read(path).spans["name"].to_list() == ["aten::mm"]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_that_breaks_off_gives_what_came_before_and_says_so(
    tmp_path: Path, share: float, packed: bool
) -> None:
    path = tmp_path / f"{share}.json"
    content = SAMPLE.read_bytes() if packed else PLAIN
    path.write_bytes(content[: int(len(content) * share)])
    timeline = read(path)
    assert 0 < timeline.spans.height <= read(SAMPLE).spans.height
    assert any("truncated" in warning for warning in timeline.warnings)
    assert timeline.coverage.filter(what="trace")["note"].is_not_null().all()


@pytest.mark.parametrize(
    "broken",
    [
        '{"ph": "X", "cat": "kernel", "name": "b", "pid": 0, "tid": 7, "ts": 2, "dur": 1, "args": {"x": inf}}',
        '{"ph": "X", "cat": "kernel", "name": "b", "pid": 0, "tid": 7, "ts": 2, "dur": 1, "args": {"x": -nan}}',
        '{"ph": "X", "cat": "kernel", "name": "b", "pid": 0, "tid": 7, "ts": 2, "dur": 1, "p": "C:\\Users"}',
        '{"ph": "X", "cat": "kernel", "name": "b", "pid": 0, "tid": 7, "ts": 2, "dur": 1, "p": "a\x01\n"}',
        '{"ph": "X", "cat": "kernel", "name": "b", "pid": 0, "tid": 7, "ts": 2, "dur": 1, "p": "\udcff"}',
    ],
)
def test_events_that_are_nearly_json_are_repaired(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "t.json"
    good = json.dumps(launched("a", 1, 1, 1))
    path.write_bytes(f'{{"traceEvents": [{good}, {broken}, {good}]}}'.encode(errors="surrogateescape"))
    timeline = read(path)
    assert timeline.spans["name"].to_list() == ["a", "a", "b"]
    assert timeline.warnings == ()


def test_an_event_beyond_mending_costs_itself_and_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    good = json.dumps(launched("a", 1, 1, 1))
    path.write_text(f'{{"traceEvents": [{good}, {{"ph": "X", oops}}, {{"args": 5}}, {good}]}}')
    timeline = read(path)
    assert timeline.spans.height == 2
    assert timeline.warnings == ("The trace t.json is incomplete: 2 of its events are damaged.",)
    assert timeline.coverage.filter(what="trace")["lost"].to_list() == [2]


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"ph": "X"},
        {"ph": "X", "name": None, "cat": 5, "pid": [1], "tid": {"a": 1}, "ts": "then", "dur": -5},
        {"ph": "X", "name": {"a": 1}, "cat": "kernel", "pid": -1, "tid": "stream x", "ts": 1e300, "dur": "long"},
        {"ph": "X", "cat": "gpu_memcpy", "pid": 2**70, "tid": 2**70, "ts": 5, "dur": 2**80,
         "args": {"device": 2**40, "stream": 2**70, "bytes": -1, "correlation": "x"}},
        {"ph": "X", "cat": "kernel", "pid": 1.5, "tid": -7, "ts": -3.5, "dur": 1, "args": {"device": -2}},
        {"ph": "X", "cat": "python_function", "name": "x.py(99999999999999): f", "pid": 1, "tid": 1, "ts": 1, "dur": 1},
        {"ph": "s", "cat": "fwdbwd", "ts": "x"},
        {"ph": "M", "name": "thread_name", "pid": [], "args": {"name": [1]}},
        {"ph": "i", "name": "[memory]", "ts": 1, "args": {"Device Type": 1, "Device Id": -1, "Total Allocated": "x"}},
        {"ph": "i", "name": "[memory]", "ts": 1, "args": {"Device Type": 1, "Device Id": "y", "Total Reserved": 4}},
        {"ph": "X", "cat": "cpu_op", "name": "ProfilerStep#999999999999", "pid": 1, "tid": 1, "ts": 1, "dur": 1},
    ],
)  # fmt: skip
def test_events_with_fields_of_any_kind_are_survived(tmp_path: Path, event: dict[str, object]) -> None:
    path = written(tmp_path / "t.json", [event, lasting("cpu_op", "aten::mm", 1, 2), launched("k", 3, 4, 5)])
    names = read(path).spans["name"].to_list()
    assert {"aten::mm", "k"} <= set(names)


@pytest.mark.parametrize(
    "header",
    [
        {"distributedInfo": {"rank": "three", "world_size": []}},
        {"distributedInfo": [1], "deviceProperties": {"id": 0}},
        {"deviceProperties": [5, {"id": "x"}, {"id": 0, "name": {"a": 1}}], "baseTimeNanoseconds": "soon"},
        {"baseTimeNanoseconds": 2**70, "host_name": 7, "traceName": ["x"]},
        {"baseTimeNanoseconds": -5, "distributedInfo": {"rank": 2**40}},
    ],
)
def test_headers_of_any_kind_are_survived(tmp_path: Path, header: dict[str, object]) -> None:
    path = written(tmp_path / "t.json", [launched("k", 3, 4, 5)], **header)
    assert read(path).spans["start"].to_list() == [3000]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, len(PLAIN) - 1), what=st.binary(min_size=0, max_size=12), gone=st.integers(0, 50))
@example(at=0, what=b"", gone=1)
def test_no_damage_anywhere_raises(tmp_path: Path, at: int, what: bytes, gone: int) -> None:
    path = tmp_path / "fuzz.json"
    # The head and the tail, so that most damage hits something that matters.
    small = PLAIN[:6000] + b"]," + PLAIN[-300:].split(b"],", 1)[-1]
    place = at % len(small)
    path.write_bytes(small[:place] + what + small[place + gone :])
    read.__wrapped__(path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, SAMPLE.stat().st_size - 1), what=st.binary(min_size=1, max_size=3))
def test_no_damage_to_compressed_data_raises(tmp_path: Path, at: int, what: bytes) -> None:
    content = SAMPLE.read_bytes()
    path = tmp_path / "fuzz.json.gz"
    path.write_bytes(content[:at] + what + content[at + len(what) :])
    read.__wrapped__(path)


@pytest.mark.parametrize("filling", [b" ", b"[", b'"', b"{", b"\\", b"[{"])
def test_a_small_file_that_unpacks_to_a_huge_one_takes_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filling: bytes
) -> None:
    monkeypatch.setattr(trace_file, "PIECE", 1 << 16)
    monkeypatch.setattr(trace_file, "LARGEST_EVENT", 1 << 20)
    monkeypatch.setattr(trace_file, "LARGEST_TRACE", 1 << 23)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + filling * (1 << 25), 1))
    tracemalloc.start()
    timeline = read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert timeline.spans.is_empty()
    assert timeline.warnings
    assert peak < 64 << 20


def test_deep_nesting_is_survived(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    good = json.dumps(launched("a", 1, 1, 1))
    deep = '{"args": ' + "[" * 100_000 + "]" * 100_000 + "}"
    path.write_text(f'{{"traceEvents": [{deep}, {good}]}}')
    assert read(path).spans.height == 1


def test_names_cannot_steer_a_terminal_and_hold_no_halves_of_characters(tmp_path: Path) -> None:
    harmful = "Optimizer.step#\x1b[2J\x1b]0;owned\x07.step"
    path = tmp_path / "t.json"
    events = [lasting("user_annotation", harmful, 1, 2), launched("k", 3, 4, 5)]
    text = json.dumps({"schemaVersion": 1, "host_name": "h\x1b[31m", "traceEvents": events})
    path.write_text(text.replace('"k"', r'"k\ud800"'))
    timeline = read(path)
    kept = str(timeline.spans["name"].to_list()) + str(timeline.tracks["name"].to_list())
    assert "x1b" not in kept
    assert "x07" not in kept
    assert timeline.spans.filter(category="kernel").height == 1


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (
            ["1.5", "7", "0.25", "12.", "1712867402348628.007"],
            [1_500, 7_000, 250, 12_000, 1_712_867_402_348_628_007],
        ),
        (["1.5", "1.0015", "-2", '"3"', "1e3"], [1_500, 1_002, -2_000, 3_000, 1_000_000]),
        (["1.5", "", "x", "1.2.3", "null", "99999999999999999999"], [1_500, None, None, None, None, None]),
    ],
    ids=["as writers have them", "as some have them", "as nobody should"],
)
def test_times_are_parsed_alike_whether_all_of_a_piece_are_plain_or_not(
    texts: list[str], found: list[int | None]
) -> None:
    assert nanoseconds([msgspec.Raw(text.encode()) for text in texts]).to_list() == found
