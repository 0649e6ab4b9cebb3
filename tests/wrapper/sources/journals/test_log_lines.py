"""Logs of a run folder are read a line at a time and up to a limit, and what was left out is said."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from perfwrap.live.hang import current_stall
from perfwrap.sources.journals import starts
from perfwrap.sources.journals.log_lines import LONGEST_LINE, LogLines
from perfwrap.sources.stack_samples import pyspy_trace
from perfwrap.timeline import step_tables
from perfwrap.timeline.builder import TimelineBuilder

FAR_TOO_LARGE = 1 << 40


def grow(path: Path) -> None:
    """Make a file larger than any memory; on the disk it takes nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.truncate(FAR_TOO_LARGE)


def warnings_of(
    path: Path, most_bytes: int = 100, most_lines: int = 100
) -> tuple[list[str], tuple[str, ...]]:
    builder = TimelineBuilder()
    found = list(LogLines(builder, most_bytes, most_lines).of(path))
    return found, builder.build({}).warnings


@pytest.mark.parametrize("log", ["starts/z.log", "tools/py-spy/z.log"])
def test_a_log_larger_than_any_memory_costs_only_its_end(run: Any, log: str) -> None:
    run.start(100, monotonic_ns=400, ppid=42)
    run.journal(pid=100).step()
    grow(run.folder.path / log)
    timeline = run.read()
    assert timeline.spans.height == 4
    assert f"{Path(log).parent.name}/z.log is too long: only its beginning was read." in timeline.warnings


def test_logs_share_what_may_be_read(tmp_path: Path) -> None:
    builder = TimelineBuilder()
    lines = LogLines(builder, 100, 3)
    for name in "ab":
        (tmp_path / name).write_text("1\n2\n")
    assert [list(lines.of(tmp_path / name)) for name in "ab"] == [["1", "2"], ["1"]]
    assert len(builder.build({}).warnings) == 1


def test_lines_that_are_too_long_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("1\n" + "x" * 3 * LONGEST_LINE + "\n2\r\nlast")
    found, warnings = warnings_of(path, most_bytes=10 * LONGEST_LINE)
    assert found == ["1", "2", "last"]
    assert [text for text in warnings if text.startswith("1 lines of")] == list(warnings)


def test_a_pipe_instead_of_a_log_is_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.log")
    found, warnings = warnings_of(tmp_path / "a.log")
    assert not found
    assert "a.log is not a regular file" in warnings[0]


def test_a_recording_that_a_log_names_again_and_again_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("begin\tr.json\t1\t1\t20\t1\n" * 5)
    assert len(list(pyspy_trace.read_log(tmp_path, LogLines(TimelineBuilder(), 1000, 100)))) == 1


def test_no_more_starts_are_kept_than_a_memory_holds(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("start\t1\t1\t1\t1\t3\tx\t\n" * 50)
    lines = LogLines(TimelineBuilder(), starts.MAX_BYTES, 20)
    assert len(list(starts.read_starts(tmp_path, lines))) == 20


def test_a_stall_with_far_too_long_a_description_is_ignored(tmp_path: Path) -> None:
    grow(tmp_path / "here-1.json")
    (tmp_path / "here-2.json").write_text("[" * 100_000)
    assert current_stall(tmp_path) is None


def test_an_index_of_step_tables_that_is_far_too_large_is_none(tmp_path: Path) -> None:
    grow(tmp_path / step_tables.INDEX)
    assert step_tables.read(tmp_path) is None
