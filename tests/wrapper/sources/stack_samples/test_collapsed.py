"""Collapsed stacks are counted; missing information is reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from perfwrap.monitors.pyspy import pyspy_tool
from perfwrap.sources.stack_samples import collapsed
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.model import Timeline

RAW = """\
thread (7): MainThread;main (train.py:24);Data.decode (train.py:7) 12
thread (7): MainThread;main (train.py:24);_recv (multiprocessing/connection.py:395) 3
thread (8): other;run (threading.py:982) 5
"""
PROGRAM = """
import time
def hot():
    until = time.monotonic() + 20
    while time.monotonic() < until:
        pass
hot()
"""


def read(path: Path) -> Timeline:
    builder = TimelineBuilder()
    collapsed.add(builder, path)
    return builder.build({})


def test_stacks_are_counted_by_thread_and_line(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(RAW)
    assert collapsed.recognises(path, path.read_bytes())
    timeline = read(path)
    names = dict(timeline.tracks.filter(pl.col("kind") == "thread").select("name", "tid").iter_rows())
    assert names == {"MainThread": 7, "other": 8}
    lines = dict(timeline.stacks.group_by("function").agg(pl.col("weight").sum()).iter_rows())
    assert lines == {"Data.decode": 12, "main": 3, None: 5}
    assert "contains no times" in timeline.warnings[0]


@pytest.mark.parametrize(
    "other", [b"", b"{}", b"[1]", b"a,b,c\n1,2,3\n", b"hello world 3\n", b"\x00\x01\x02", b"12\n"]
)
def test_other_files_are_not_taken_for_it(tmp_path: Path, other: bytes) -> None:
    assert not collapsed.recognises(tmp_path / "x.raw", other)


def test_lines_of_another_kind_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(
        RAW.encode() + b"\n\xff\xfe\nno number\n;;; 3\nf (x:99999999999999999999) 1\nf (x:1) " + b"9" * 40
    )
    timeline = read(path)
    assert timeline.stacks["weight"].sum() == 20 + 3 + 1
    assert any(warning.startswith("3 lines of x are not collapsed stacks") for warning in timeline.warnings)


def test_samples_without_a_stack_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(f" 2\n{RAW} 1\n")
    assert collapsed.recognises(path, path.read_bytes())
    assert not collapsed.recognises(path, b" 2\n 1\n")
    timeline = read(path)
    assert timeline.stacks.filter(pl.col("function") == "main")["weight"].sum() == 3
    assert timeline.warnings[1:] == ("3 samples of x have no stack; they were not counted.",)


def test_what_py_spy_itself_writes_is_read(tmp_path: Path) -> None:
    tool = pyspy_tool.find()
    if tool is None:
        pytest.skip("py-spy is not installed")
    script, path = tmp_path / "hot.py", tmp_path / "raw"
    script.write_text(PROGRAM)
    process = subprocess.Popen([sys.executable, str(script)])
    try:
        command = [
            tool,
            "record",
            "--nonblocking",
            "-f",
            "raw",
            "-d",
            "1",
            "-p",
            str(process.pid),
            "-o",
            str(path),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
    finally:
        process.kill()
        process.wait()
    if done.returncode:
        pytest.skip(f"py-spy may not look into other processes here: {done.stderr}")
    assert collapsed.recognises(path, path.read_bytes()[:4096])
    timeline = read(path)
    assert timeline.stacks.filter(pl.col("function") == "hot")["weight"].sum() >= 10
