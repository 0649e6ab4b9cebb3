"""Files of other tools in a run folder: what can be read is read, and an unreadable file costs only itself."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest


@pytest.fixture
def tools(run) -> Path:
    """Make the folder of tools in a run that recorded something."""
    run.journal().step()
    folder = Path(run.folder.path) / "tools"
    folder.mkdir()
    return folder


def test_a_capture_is_added_to_the_run(run, tools: Path) -> None:
    connection = sqlite3.connect(tools / "nsys.sqlite")
    connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER)")
    connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 5)")
    connection.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    connection.commit()
    connection.close()
    sources = set(run.read().spans["source"])
    assert sources == {"recorder", "nsys"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("nsys.sqlite", b"SQLite format 3\0" + bytes(500)),
        ("nsys.sqlite", b"NVIDIA Tegra Profiler Report 2026"),
        ("ncu.csv", b'"ID","Process ID","Process Name"\n'),
    ],
)
def test_a_file_that_cannot_be_read_is_said_and_the_run_is_whole(
    run, tools: Path, name: str, content: bytes
) -> None:
    (tools / name).write_bytes(content)
    timeline = run.read()
    assert set(timeline.spans["source"]) == {"recorder"}
    assert any(name in warning for warning in timeline.warnings)


def test_logs_and_unknown_files_are_left_alone(run, tools: Path) -> None:
    (tools / "nsys.log").write_text("Collecting data...\n")
    (tools / "mine.csv").write_text("a,b\n1,2\n")
    assert not run.read().warnings
