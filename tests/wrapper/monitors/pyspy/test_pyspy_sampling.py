"""The monitor keeps one py-spy at work per process, within its budget, and ends them all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from perfwrap.monitors.monitor_journal import JournalWriter, start_ticks
from perfwrap.monitors.processes.pythons import Python
from perfwrap.monitors.pyspy import pyspy_sampling
from perfwrap.monitors.pyspy.pyspy_recording import PySpyOptions
from perfwrap.monitors.pyspy.pyspy_sampling import PySpyMonitor

STAND_IN = """#!/bin/sh
while [ "$1" != --output ]; do shift; done
trap 'echo "[]" > "'$2'"; exit 0' INT
{}
"""
WAITS = 'echo >> "$2.starts"; while :; do sleep 0.02; done'
"""Says that it has started when it is ready for signals."""
WRITES = """echo '[]' > "$2" """
REFUSED = "echo 'Error: Operation not permitted (os error 1)' >&2; exit 1"
FAILS = "echo 'Error: unknown version' >&2; exit 1"

Wait = Callable[[Callable[[], object], str], object]


class Given:
    """Processes that are there from the beginning."""

    def __init__(self, pythons: list[Python]) -> None:
        self._pythons = pythons

    def fresh(self) -> list[Python]:
        """Return them, once."""
        found, self._pythons = self._pythons, []
        return found


@pytest.fixture
def target() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.communicate(b"\n")


@pytest.fixture
def make(tmp_path: Path, target: subprocess.Popen[bytes]) -> Callable[[str], PySpyMonitor]:
    """Return a function that makes a monitor of the target whose py-spy runs this script."""

    def monitor(script: str, light_sampling: bool = False) -> PySpyMonitor:
        tool = tmp_path / "py-spy"
        tool.write_text(STAND_IN.format(script))
        tool.chmod(0o755)
        python = Python(target.pid, start_ticks(target.pid))
        journal = JournalWriter(tmp_path, "here")
        options = PySpyOptions(str(tool), 20.0, light_sampling=light_sampling)
        return PySpyMonitor(journal, tmp_path / "tools", options, Given([python]))

    return monitor


def lines(folder: Path) -> list[list[str]]:
    return [line.split("\t") for line in (folder / "tools/here.log").read_text().splitlines()]


def look(monitor: PySpyMonitor) -> bool:
    """Look once; always false, for use inside a condition."""
    monitor.quick(time.monotonic_ns())
    return False


def test_one_recording_follows_the_other_and_each_is_kept_small(
    tmp_path: Path, make: Callable[[str], PySpyMonitor], wait_for: Wait
) -> None:
    monitor = make(WRITES)
    wait_for(lambda: look(monitor) or len(lines(tmp_path)) >= 4, "two recordings")
    assert [row[0] for row in lines(tmp_path)][:4] == ["begin", "end", "begin", "end"]
    files = {path.name for path in (tmp_path / "tools").iterdir()}
    assert lines(tmp_path)[0][1] + ".gz" in files
    assert not any(name.endswith(".said") for name in files)
    monitor.close()


def test_light_sampling_starts_often_and_goes_on_rarely(
    tmp_path: Path, make: Callable[..., PySpyMonitor], wait_for: Wait
) -> None:
    monitor = make(WRITES, light_sampling=True)
    wait_for(lambda: look(monitor) or len(lines(tmp_path)) >= 14, "seven recordings")
    rates = [row[4] for row in lines(tmp_path) if row[0] == "begin"]
    assert rates[:7] == ["25.0"] + ["10.0"] * 4 + ["2.0"] * 2
    monitor.close()


def test_refused_light_sampling_is_in_the_coverage_and_no_warning(
    tmp_path: Path, make: Callable[..., PySpyMonitor], wait_for: Wait
) -> None:
    monitor = make(REFUSED, light_sampling=True)
    monitor.quick(time.monotonic_ns())
    wait_for(lambda: look(monitor) or len(lines(tmp_path)) >= 2, "the refusal")
    assert lines(tmp_path)[1][-1] == ""
    assert b"pyspy" in next(tmp_path.glob("*.pwj")).read_bytes()
    monitor.close()


def test_the_end_has_py_spy_write_what_it_has(
    tmp_path: Path, make: Callable[[str], PySpyMonitor], wait_for: Wait
) -> None:
    monitor = make(WAITS)
    look(monitor)
    wait_for(lambda: list((tmp_path / "tools").glob("*.starts")), "py-spy")
    monitor.close()
    begin, end = lines(tmp_path)
    assert (begin[0], end[0], end[1]) == ("begin", "end", begin[1])
    assert int(end[2]) >= int(begin[5])
    assert (tmp_path / "tools" / begin[1]).is_file()


def test_a_py_spy_that_does_not_end_is_killed_in_time(
    tmp_path: Path, make: Callable[[str], PySpyMonitor], wait_for: Wait
) -> None:
    monitor = make("trap '' INT; " + WAITS)
    look(monitor)
    wait_for(lambda: list((tmp_path / "tools").glob("*.starts")), "py-spy")
    monitor.close()
    assert os.WTERMSIG(int(lines(tmp_path)[1][3])) == signal.SIGKILL


@pytest.mark.parametrize(("script", "starts"), [(REFUSED, 1), (FAILS, pyspy_sampling.MAX_FAILURES)])
def test_what_cannot_be_sampled_is_explained_and_left_alone(
    tmp_path: Path, make: Callable[[str], PySpyMonitor], wait_for: Wait, script: str, starts: int
) -> None:
    monitor = make(script)
    wait_for(lambda: look(monitor) or len(lines(tmp_path)) >= 2 * starts, "the failures")
    for _ in range(5):
        look(monitor)
    monitor.close()
    assert [row[0] for row in lines(tmp_path)] == ["begin", "end"] * starts
    (journal,) = tmp_path.glob("*.pwj")
    assert b"process" in journal.read_bytes()


def test_recordings_come_less_often_when_the_budget_wears_thin(
    make: Callable[[str], PySpyMonitor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor = make(WRITES)
    strides = []
    for used in (0.0, 0.49, 0.51, 0.76, 0.9, 0.9999, 1.5):
        monkeypatch.setattr(monitor, "_used_bytes", int(used * pyspy_sampling.BUDGET_BYTES))
        strides.append(monitor._stride())
    assert strides == [1, 1, 2, 4, 8, pyspy_sampling.LARGEST_STRIDE, pyspy_sampling.LARGEST_STRIDE]
    monitor.close()
