"""The watching for stalls, over journals that are written slot by slot, of processes that live."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from perfwrap.journal_format import DESCRIBE, HEADER, MAGIC, RECORD, SPANS, SUM
from perfwrap.monitors.monitor_journal import start_ticks
from perfwrap.monitors.processes import process_activity
from perfwrap.monitors.processes.pythons import Python
from perfwrap.monitors.progress.first_trainer import FIRST_STEPS, FirstTrainer
from perfwrap.monitors.progress.journal_progress import StepTimes
from perfwrap.monitors.progress.shown_progress import SharedProgress
from perfwrap.monitors.stalls import stall_report
from perfwrap.monitors.stalls import stall_watch as stalls
from perfwrap.monitors.stalls.stall_kill import Killer
from perfwrap.run_folder import RunFolder

SECOND = 1_000_000_000
PIECE = struct.Struct("<24sIHH")
OPEN_SLOTS = {"data": 5, "collective": 6}


class Trainer:
    """A living process that waits, and the journal that it might have written."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], role: str, **facts: object) -> None:
        self.process, self.now = process, 0
        name = f"testhost-{process.pid}-{start_ticks(process.pid)}-0.pwj"
        self._file = open(folder / name, "w+b", buffering=0)  # noqa: SIM115 - open as long as the test
        self._file.write(HEADER.pack(MAGIC, 1, process.pid, 0, 0) + bytes(7 * RECORD.size))
        self._texts: dict[str, int] = {}
        for key, value in {"role": role, "ppid": 1, **facts}.items():
            self.record("FACT", 0, value=self.text(str(value)), name=key)

    def text(self, text: str) -> int:
        if text and text not in self._texts:
            number = self._texts[text] = len(self._texts) + 1
            for piece in range(-(-len(text) // 24)):
                part = text.encode()[24 * piece : 24 * piece + 24]
                self._file.write(PIECE.pack(part, number, piece, DESCRIBE["TEXT"]))
        return self._texts.get(text, 0)

    def record(self, kind: str, start: int, duration: int = 0, value: int = 0, name: str = "") -> None:
        number = {**DESCRIBE, **SPANS}[kind]
        self._file.write(RECORD.pack(start, duration, value, self.text(name), 1, number))

    def step(self, ms: int = 100, kind: str = "OPTIMIZER") -> None:
        self.now += ms * 1_000_000
        self.record(kind, self.now - 1_000_000, 1_000_000, name="SGD#1\x1ftrain.py\x1f24\x1fmain")

    def enter(self, kind: str, name: str) -> None:
        """Let it be inside a call."""
        number = self.text(name)
        slot = RECORD.pack(self.now, 0, SPANS[kind.upper()], number, 1, DESCRIBE["OPEN"])
        os.pwrite(self._file.fileno(), slot, OPEN_SLOTS[kind] * RECORD.size)


class Watched:
    """A monitor with a clock of its own."""

    def __init__(self, book: Any, run: RunFolder, **options: Any) -> None:
        self.said: list[str] = []
        self.book, self.run, self.now = book, run, SECOND
        known = stalls.StallOptions(60.0, os.getpid(), self.said.append, **options)
        self.roots: deque[int] = deque()
        self.shown = SharedProgress()
        self.monitor = stalls.StallMonitor(book.writer, run, self.roots, known, self.shown)
        self.monitor._interval_ns = 5 * SECOND

    def look(self, seconds: int) -> None:
        """Let so much time pass, with a look every five seconds."""
        for _ in range(seconds // 5):
            self.now += 5 * SECOND
            self.monitor.full(self.now)

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.run.stalls.glob("*.json"))]


@pytest.fixture
def watched(book: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    # The output of py-spy is tested on real programs; here it would only cost time.
    monkeypatch.setattr(stalls.pyspy_tool, "find", lambda: None)
    for name in ("journal", "starts"):
        (tmp_path / name).mkdir()
    return Watched(book, RunFolder(tmp_path))


@pytest.fixture
def trainer(watched: Watched) -> Iterator[Callable[..., Trainer]]:
    """Return a function that starts a process which waits."""
    made: list[Trainer] = []

    def start(role: str = "main", steps: int = 20, **facts: object) -> Trainer:
        process = subprocess.Popen(["sleep", "1000"])
        watched.roots.append(process.pid)
        made.append(Trainer(watched.run.journal, process, role, **facts))
        for _ in range(steps):
            made[-1].step()
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        one.process.wait()


def test_a_minute_of_silence_is_reported_at_once_with_the_missing_rank(
    watched: Watched, trainer: Callable[..., Trainer]
) -> None:
    meeting, missing = trainer(rank=0, world_size=2), trainer(rank=1, world_size=2)
    meeting.enter("collective", "all_reduce\x1ftrain.py\x1f31\x1fmain")
    watched.look(60)
    assert watched.said == []
    assert not watched.shown.stalled
    watched.look(10)
    (line,) = watched.said
    assert "no step has ended for 60 s: rank 1 is missing" in line
    assert "rank 0 waits in all_reduce at train.py:31" in line
    (record,) = watched.records
    assert str(watched.run.stalls / "testhost-1.json") in line
    assert record["missing"] == ["rank 1"]
    assert record["ended"] is None
    assert {one["pid"] for one in record["processes"]} == {meeting.process.pid, missing.process.pid}
    assert all(one["threads"][0]["state"] == "S" for one in record["processes"])
    assert watched.shown.stalled
    meeting.step()
    watched.look(5)
    assert watched.records[0]["ended"]["how"] == "steps resumed"
    assert "steps resumed" in watched.said[-1]
    assert [name for name, _ in watched.book.read().marks] == ["stall", "stall_end"]


def test_a_worker_that_took_an_order_and_a_loop_that_waits_for_it_are_named(
    watched: Watched, trainer: Callable[..., Trainer]
) -> None:
    main = trainer(**{"loader/1/created": "train.py\x1f12\x1fmain"})
    main.enter("data", "loader/1")
    hanging, waiting = trainer("worker", 0), trainer("worker", 0)
    for worker, ms in ((hanging, 20), (waiting, 5000)):
        worker.record("FETCH", SECOND, 1_000_000)
        worker.record("IDLE", SECOND, ms * 1_000_000)
    watched.look(75)
    (line,) = watched.said
    assert "waits for a batch of the DataLoader made at train.py:12" in line
    assert f"the DataLoader worker {hanging.process.pid} hangs in a batch" in line
    assert str(waiting.process.pid) not in line


@pytest.mark.parametrize("kind", ["FORWARD", "DATA", "SAVE", "COMPILE", "COLLECTIVE", "SYNC"])
def test_progress_of_another_kind_is_no_stall(
    watched: Watched, trainer: Callable[..., Trainer], kind: str
) -> None:
    main = trainer()
    for _ in range(30):
        main.record(kind, watched.now)
        watched.look(10)
    assert watched.said == []


def test_a_sum_that_grows_in_its_place_is_progress_and_counts_steps(
    watched: Watched, trainer: Callable[..., Trainer]
) -> None:
    main = trainer()
    main.record("THIN", main.now, value=-1)
    place = main._file.tell()
    for count in range(1, 30):
        sums = RECORD.pack(main.now, 0, count * 10, 0, 1, SPANS["OPTIMIZER"] | SUM)
        os.pwrite(main._file.fileno(), sums, place)
        watched.look(10)
    assert watched.said == []
    assert watched.shown.trainers[0].steps == 20 + 290


@pytest.mark.parametrize("kind", ["GC", "PERFWRAP"])
def test_what_goes_on_while_a_program_waits_is_no_progress(
    watched: Watched, trainer: Callable[..., Trainer], kind: str
) -> None:
    main = trainer()
    for _ in range(8):
        watched.look(10)
        main.record(kind, watched.now)
    assert len(watched.said) == 1


def test_nothing_is_reported_before_steps_are_known_or_after_the_loop_has_ended(
    watched: Watched, trainer: Callable[..., Trainer]
) -> None:
    trainer(steps=1)
    trainer().record("DATA_END", SECOND)
    watched.look(300)
    assert watched.said == []


def test_long_steps_have_more_time(watched: Watched, trainer: Callable[..., Trainer]) -> None:
    main = trainer(steps=0)
    for _ in range(10):
        main.step(ms=40_000)
    watched.look(190)
    assert watched.said == []
    watched.look(40)
    assert len(watched.said) == 1


def test_a_stopped_process_is_no_stall(watched: Watched, trainer: Callable[..., Trainer]) -> None:
    main = trainer()
    main.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, main.process.pid, os.WSTOPPED)
    watched.look(300)
    assert watched.said == []


def test_a_machine_that_stood_still_makes_no_stall(watched: Watched, trainer: Callable[..., Trainer]) -> None:
    trainer()
    watched.look(10)
    for _ in range(5):
        watched.now += 600 * SECOND
        watched.monitor.full(watched.now)
    assert watched.said == []


def test_ranks_that_wait_for_those_of_other_machines_have_more_patience(
    watched: Watched, trainer: Callable[..., Trainer]
) -> None:
    trainer(rank=0, world_size=4).enter("collective", "barrier\x1ftrain.py\x1f40\x1fmain")
    watched.look(500)
    assert watched.said == []
    watched.look(150)
    assert "waits in barrier at train.py:40" in watched.said[0]


def test_a_rank_that_no_variable_names_is_known_once_it_has_said_so(
    watched: Watched, trainer: Callable[..., Trainer]
) -> None:
    alone = trainer(steps=3)
    watched.look(5)
    for key, value in {"rank": 3, "world_size": 4}.items():
        alone.record("FACT", 0, value=alone.text(str(value)), name=key)
    for _ in range(5):
        alone.step()
    watched.look(5)
    assert [one.rank for one in watched.shown.trainers] == ["3"]
    alone.enter("collective", "barrier\x1ftrain.py\x1f40\x1fmain")
    watched.look(500)
    assert watched.said == [], "it waits for ranks elsewhere"


def test_a_rank_that_has_ended_is_missing(watched: Watched, trainer: Callable[..., Trainer]) -> None:
    gone = trainer(rank=1, world_size=2)
    trainer(rank=0, world_size=2).enter("collective", "all_reduce\x1ftrain.py\x1f31\x1fmain")
    watched.look(5)
    gone.process.kill()
    gone.process.wait()
    watched.look(80)
    assert "rank 1 is missing, it has ended; rank 0 waits in all_reduce" in watched.said[0]


def test_the_end_of_the_command_ends_a_stall(watched: Watched, trainer: Callable[..., Trainer]) -> None:
    trainer()
    watched.look(75)
    watched.monitor.close()
    assert watched.records[0]["ended"]["how"] == "the command ended"


def test_ranks_that_work_are_distinguished_from_ranks_that_wait() -> None:
    def use(ticks: int = 0, moved: int | None = 0, switches: int = 0) -> process_activity.Use:
        return process_activity.Use(ticks, moved, switches, False)

    before = process_activity.Activity(0, dict.fromkeys((*range(6), 7), use()))
    wants_a_core = process_activity.Use(0, 0, 0, False, True)
    now = {
        0: use(ticks=1),
        1: use(ticks=200),
        2: use(moved=10**8),
        3: use(switches=900),
        4: use(switches=900),
    }
    after = process_activity.Activity(10 * SECOND, {**now, 5: use(moved=None), 6: use(), 7: wants_a_core})
    assert process_activity.at_work(before, after, {4}) == [1, 2, 4, 6, 7]


def test_ranks_in_the_same_call_are_distinguished_by_their_steps() -> None:
    def one(rank: int, steps: int, meets: bool = True) -> stall_report.Standing:
        return stall_report.Standing(rank, rank, steps, False, False, True, meets=meets)

    assert stall_report.find_missing([one(0, 7), one(1, 6), one(2, 7)]) == [one(1, 6)]
    assert stall_report.find_missing([one(0, 7), one(1, 7)]) == []
    assert stall_report.find_missing([one(0, 7), one(1, 8, meets=False)]) == [one(1, 8, meets=False)]


def test_the_slowest_steps_are_known_to_nine_per_cent() -> None:
    times = StepTimes()
    times.add(1_000_000, 985)
    times.add(50_000_000, 15)
    assert 50_000_000 <= times.quantile(0.99) <= 54_600_000
    assert times.quantile(0.5) <= 1_090_000


def test_a_command_is_asked_first_and_killed_after_the_grace_time() -> None:
    launcher, command = subprocess.Popen(["sleep", "1000"]), subprocess.Popen(["sleep", "1000"])
    members = {command.pid: start_ticks(command.pid), launcher.pid: 0}
    killer = Killer(launcher.pid, 30.0)
    assert not killer.insist(100 * SECOND, members)
    killer.ask(100 * SECOND)
    assert launcher.wait(60) == -signal.SIGTERM
    assert not killer.insist(129 * SECOND, members)
    assert killer.insist(131 * SECOND, members)
    assert command.wait(60) == -signal.SIGKILL


def test_other_tools_find_the_lowest_rank_that_has_made_some_steps_and_then_none(
    watched: Watched, trainer: Callable[..., Trainer]
) -> None:
    finder = FirstTrainer(watched.run.journal, "testhost")
    trainer("worker", steps=0).record("FETCH", SECOND, 1_000_000)
    later, first = trainer(steps=FIRST_STEPS - 1, rank=1), trainer(steps=1, rank=0)
    assert finder.fresh() == []
    for one in (later, first):
        for _ in range(FIRST_STEPS):
            one.step()
    assert finder.fresh() == [Python(first.process.pid, start_ticks(first.process.pid))]
    trainer()
    assert finder.fresh() == []
