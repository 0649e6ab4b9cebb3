"""The builder: one track for one thing, sorted tables, no unknown columns."""

from __future__ import annotations

import pytest
from perfwrap.timeline.builder import TimelineBuilder


def test_the_same_thing_is_one_track() -> None:
    builder = TimelineBuilder()
    process = builder.process("here", 7, "a")
    assert builder.process("here", 7, "a") == process
    assert builder.process("here", 7, "b") != process
    assert builder.device("here", "gpu/0") == builder.device("here", "gpu/0")
    assert builder.device("here", "host") == builder.host("here")


def test_the_process_of_a_pid_is_the_one_that_was_named_last() -> None:
    builder = TimelineBuilder()
    builder.process("here", 7, "a")
    later = builder.process("here", 7, "b")
    assert builder.latest_process("here", 7) == later
    assert builder.latest_process("there", 7) not in (later, None)


@pytest.mark.parametrize(
    ("metric", "unit"),
    [
        ("read_bytes_per_s", "bytes/s"),
        ("major_faults_per_s", "1/s"),
        ("rss_bytes", "bytes"),
        ("busy_share", "share"),
        ("sm_clock_hertz", "hertz"),
        ("threads", "count"),
    ],
)
def test_a_counters_unit_is_the_suffix_of_its_name(metric: str, unit: str) -> None:
    builder = TimelineBuilder()
    track = builder.counter(builder.host("here"), metric)
    assert builder.build({}).tracks["unit"][track] == unit


def test_rows_are_sorted_and_missing_columns_are_null() -> None:
    builder = TimelineBuilder()
    builder.add_row("marks", time=5, track=0, name="later")
    builder.add_row("marks", time=2, track=0, name="earlier")
    marks = builder.build({}).marks
    assert marks.select("time", "name", "detail").rows() == [(2, "earlier", None), (5, "later", None)]


def test_a_column_that_the_table_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match="colour"):
        TimelineBuilder().add_row("marks", time=1, colour="red")


def test_a_warning_is_kept_once() -> None:
    builder = TimelineBuilder()
    builder.warn("Something was lost.")
    builder.warn("Something was lost.")
    assert builder.build({}).warnings == ("Something was lost.",)


def test_names_that_a_program_gives_hold_no_secrets() -> None:
    builder = TimelineBuilder()
    thread = builder.native_thread(builder.process("here", 7, "a"), 8, "token=hunter2")
    for name, operation in (("token=hunter2", "nvtx"), ("lambda key: 1", "op")):
        builder.add_row("spans", start=1, duration=1, track=thread, name=name, operation=operation)
    builder.warn("py-spy said: password=hunter2")
    timeline = builder.build({})
    assert timeline.tracks["name"][thread] == "token=***"
    assert sorted(timeline.spans["name"]) == ["lambda key: 1", "token=***"]
    assert timeline.warnings == ("py-spy said: password=***",)
