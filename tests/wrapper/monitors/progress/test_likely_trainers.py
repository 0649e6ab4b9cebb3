"""Which processes are sampled before it is known which one trains."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from perfwrap.monitors.processes import pythons
from perfwrap.monitors.processes.pythons import Python, StartedPythons
from perfwrap.monitors.progress import likely_trainers
from perfwrap.monitors.progress.likely_trainers import MAX_CANDIDATES, LikelyTrainers
from perfwrap.run_folder import START_FIELDS


class Given:
    """Returns processes in the order in which they are given."""

    def __init__(self, *turns: list[Python]) -> None:
        self.turns = list(turns)

    def fresh(self) -> list[Python]:
        """Return the next ones."""
        return self.turns.pop(0) if self.turns else []


@pytest.fixture(autouse=True)
def always_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likely_trainers, "LOOK_NS", 0)


def test_candidates_come_first_and_the_trainer_ends_the_search() -> None:
    launcher, rank = Python(1, 10), Python(2, 20)
    found = LikelyTrainers(Given([], [], [rank]), Given([launcher], [rank], [Python(3, 30)]))  # type: ignore[arg-type]
    assert found.fresh() == [launcher]
    assert found.fresh() == [rank]
    assert found.chosen is None
    assert found.fresh() == []
    assert found.chosen == rank
    assert found.fresh() == []


def test_a_trainer_that_was_no_candidate_is_found() -> None:
    fork = Python(5, 50)
    found = LikelyTrainers(Given([], [fork]), Given([Python(1, 10)]))  # type: ignore[arg-type]
    found.fresh()
    assert found.fresh() == [fork]
    assert found.chosen == fork


def test_there_is_a_limit_to_the_candidates() -> None:
    many = [Python(number, 10) for number in range(10)]
    found = LikelyTrainers(Given(), Given(many[:2], many[2:], many))  # type: ignore[arg-type]
    assert len(found.fresh() + found.fresh() + found.fresh()) == MAX_CANDIDATES


def record(folder: Path, pid: int, ticks: int, event: str = "start") -> None:
    """Write the start record of a process."""
    words = {"event": event, "pid": str(pid), "start_ticks": str(ticks)}
    with open(folder / "here.log", "a") as log:
        log.write("\t".join(words.get(name, "0") for name in START_FIELDS) + "\n")


def ticks_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_processes_are_found_a_moment_after_their_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = StartedPythons(tmp_path)
    assert found.fresh() == []
    own = os.getpid()
    record(tmp_path, own, ticks_of(own))
    record(tmp_path, own, 1)  # another process, which has ended
    record(tmp_path, os.getppid(), ticks_of(os.getppid()), "fork")
    monkeypatch.setattr(pythons, "MIN_AGE_NS", 1 << 62)
    assert found.fresh() == []
    monkeypatch.setattr(pythons, "MIN_AGE_NS", 0)
    assert found.fresh() == [Python(own, ticks_of(own))]
    assert found.fresh() == []


def test_helpers_of_multiprocessing_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pythons, "MIN_AGE_NS", 0)
    words = "input() or 'from multiprocessing.resource_tracker import main'"
    with subprocess.Popen([sys.executable, "-c", words], stdin=subprocess.PIPE) as helper:
        record(tmp_path, helper.pid, ticks_of(helper.pid))
        assert StartedPythons(tmp_path).fresh() == []
        helper.communicate(b"\n")
