"""What other programs use, read from a made-up /proc."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from perfwrap.monitors.processes import other_programs
from perfwrap.monitors.processes.other_programs import OtherPrograms
from perfwrap.monitors.processes.procfs import TICKS_PER_SECOND
from perfwrap.monitors.rounds import SECOND_NS

LAUNCHER, TRAINING, WORKER, ADOPTED = 10, 11, 12, 13


class Proc:
    """A folder like /proc."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def process(self, pid: int, name: str, seconds: float, parent: int = 1, start: int = 5) -> None:
        """Write a process that has used so much CPU time."""
        ticks = round(seconds * TICKS_PER_SECOND)
        fields = ["R", str(parent), *["0"] * 9, str(ticks), "0", "0", "0", "20", "0", "1", "0", str(start)]
        folder = self.path / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stat").write_text(f"{pid} ({name}) {' '.join(fields + ['0'] * 30)}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    """A machine on which nothing has run yet."""
    return Proc(tmp_path / "proc")


@pytest.fixture
def others(book: Any, proc: Proc) -> OtherPrograms:
    """The readings of that machine."""
    return OtherPrograms(book.writer, LAUNCHER, proc.path)


def test_programs_outside_the_run_are_added_up_by_name(book: Any, proc: Proc, others: OtherPrograms) -> None:
    for seconds in (100, 106):
        proc.process(LAUNCHER, "perfwrap", seconds)
        proc.process(TRAINING, "python", seconds, parent=LAUNCHER)
        proc.process(WORKER, "pt_data_worker", seconds, parent=TRAINING)
        proc.process(ADOPTED, "python", seconds)
        proc.process(20, "ffmpeg", seconds - 2)
        proc.process(21, "ffmpeg", seconds / 2)
        proc.process(22, "a (b) c", seconds / 2)
        proc.process(23, "sleep", 1)
        others.look(seconds * SECOND_NS, {ADOPTED})
    content = book.read()
    assert content.values("host", "program/ffmpeg/cpu_cores") == [1.5]
    assert content.values("host", "program/a (b) c/cpu_cores") == [0.5]
    assert content.values("host", "other_cores") == [2.0]
    assert not {metric for _, metric in content.samples if "python" in metric or "sleep" in metric}


def test_a_process_that_began_since_the_last_reading_counts_in_full(
    book: Any, proc: Proc, others: OtherPrograms
) -> None:
    proc.process(20, "make", 50)
    others.look(100 * SECOND_NS, ())
    proc.process(20, "cc1", 3, start=9)  # the same pid
    proc.process(21, "cc1", 1)
    others.look(104 * SECOND_NS, ())
    content = book.read()
    assert content.values("host", "program/cc1/cpu_cores") == [1.0]
    assert content.values("host", "program/make/cpu_cores") == []


def test_only_those_that_used_most_get_a_value(book: Any, proc: Proc, others: OtherPrograms) -> None:
    for seconds in (100, 110):
        for number in range(9):
            proc.process(20 + number, f"program{number}", seconds * (number + 1) / 10)
        others.look(seconds * SECOND_NS, ())
    content = book.read()
    named = {metric for _, metric in content.samples if metric.startswith("program/")}
    assert named == {f"program/program{number}/cpu_cores" for number in range(4, 9)}
    assert content.values("host", "other_cores") == pytest.approx([4.5])


def test_readings_wait_two_seconds_and_the_last_one_is_at_the_end(
    book: Any, proc: Proc, others: OtherPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_programs, "SHARE", 1e9)
    for tenths in range(0, 50, 5):
        proc.process(20, "ffmpeg", tenths / 10)
        others.look(100 * SECOND_NS + tenths * SECOND_NS // 10, ())
    assert book.read().values("host", "other_cores") == pytest.approx([1.0, 1.0])
    others.close(105 * SECOND_NS, ())
    others.close(105 * SECOND_NS + SECOND_NS // 10, ())
    assert len(book.read().values("host", "other_cores")) == 3


def test_a_reading_that_is_expensive_is_repeated_less_often(
    book: Any, proc: Proc, others: OtherPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_programs, "SHARE", 1e-12)
    proc.process(20, "ffmpeg", 1)
    for seconds in (100, 104, 108):
        others.look(seconds * SECOND_NS, ())
    assert book.read().values("host", "other_cores") == []


def test_a_name_that_looks_like_a_secret_is_masked(book: Any, proc: Proc, others: OtherPrograms) -> None:
    for seconds in (100, 104):
        proc.process(20, "token=abcdef", seconds)
        proc.process(21, "kworker/0:1", seconds)
        others.look(seconds * SECOND_NS, ())
    named = {metric for _, metric in book.read().samples if metric.startswith("program/")}
    assert named == {"program/token=***/cpu_cores", "program/kworker_0:1/cpu_cores"}
