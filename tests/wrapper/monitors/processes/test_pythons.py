"""Only the processes that train or make batches are sampled, each recognised by its own journal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from perfwrap.journal_format import DESCRIBE, HEADER, MAGIC, RECORD
from perfwrap.monitors.monitor_journal import JournalWriter, start_ticks
from perfwrap.monitors.processes.pythons import Python, RecordedPythons, TreePythons, is_alive, journal_role


@pytest.mark.parametrize(
    ("role", "sampled"), [("main", 1), ("worker", 1), ("agent", 0), ("helper", 0), ("monitor", 0)]
)
def test_only_training_processes_and_workers_are_sampled(tmp_path: Path, role: str, sampled: int) -> None:
    pythons = RecordedPythons(tmp_path, "here")
    journal = JournalWriter(tmp_path, "here")
    journal.fact("python", "3.11.7")
    journal.fact("role", role)
    assert journal_role(journal.path) == role
    assert pythons.fresh() == [Python(os.getpid(), start_ticks(os.getpid()))] * sampled
    assert pythons.fresh() == []
    journal.close()


def test_a_journal_without_its_role_yet_is_read_again(tmp_path: Path) -> None:
    pythons = RecordedPythons(tmp_path, "here")
    journal = JournalWriter(tmp_path, "here")
    assert pythons.fresh() == []
    journal.fact("role", "main")
    assert len(pythons.fresh()) == 1
    journal.close()


def test_journals_of_other_machines_and_of_processes_that_are_gone_are_passed_over(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path, "there")
    journal.fact("role", "main")
    journal.path.rename(tmp_path / f"here-{os.getpid()}-1-0.pwj")
    assert RecordedPythons(tmp_path, "here").fresh() == []
    assert RecordedPythons(tmp_path, "nowhere").fresh() == []
    journal.close()


@pytest.mark.parametrize(
    "data", [b"", b"nonsense", MAGIC + b"x" * 7, HEADER.pack(MAGIC, 1, 1, 1, 1) + b"\xff" * 64]
)
def test_a_damaged_journal_has_no_role(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "here-1-1-0.pwj"
    path.write_bytes(data)
    assert journal_role(path) == ""
    assert DESCRIBE["TEXT"] and RECORD.size == HEADER.size


def test_the_pythons_below_a_process_are_found_and_nothing_else(
    tmp_path: Path, wait_for: Callable[[Callable[[], object], str], object]
) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    shell = subprocess.Popen(["/bin/sh", "-c", f'{sys.executable} -c "{code}"; true'], stdin=subprocess.PIPE)
    pythons = TreePythons(shell.pid, tmp_path)
    found: list[Python] = []
    wait_for(lambda: found.extend(pythons.fresh()) or len(found) >= 2, "both Pythons")
    assert shell.pid not in [python.pid for python in found]
    assert os.getpid() not in [python.pid for python in found]
    shell.communicate(b"\n")
    assert not any(is_alive(python) for python in found)
