"""Has py-spy sample the stacks of the training processes and of their DataLoader workers, from outside.

Where nobody asked for it, it has a glance: half a minute of one process that trains.

One py-spy per process records for RECORDING_SECONDS and is followed by the next. Its format ``chrometrace`` is
the one that tells when a stack changed; ``raw`` has no times, and those of ``speedscope`` are off by seconds
because py-spy samples at random intervals. When each recording began stands in ``tools/py-spy/<host>.log``, whose
lines ``run_folder.py`` specifies.

Sampling only reads the process's memory (``--nonblocking``), so that the program never stands still for it, nothing
it waits for is interrupted, and killing py-spy in the midst leaves no trace; but ``--native`` stops the process
for each sample. A py-spy ends with the process that it samples, and when its recording is over: nobody has to be
alive to end it.
"""

from __future__ import annotations

import math
import os
import signal
import time
from pathlib import Path

from perfwrap.monitors import pyspy_tool
from perfwrap.monitors.first_trainer import FirstTrainer
from perfwrap.monitors.journal import JournalWriter
from perfwrap.monitors.pyspy_recording import Asked, Recording, compress, size, written_ns
from perfwrap.monitors.pythons import Python, Pythons, RecordedPythons, TreePythons, is_alive
from perfwrap.run_folder import RunFolder

BUDGET_BYTES = 64 << 20
"""What all recordings of a run may take, compressed: twelve hours of eight processes at 20 Hz."""
LARGEST_STRIDE = 1 << 10
FINISH_SECONDS = 0.6
"""How long the last recordings may take to be written; a py-spy at 10 Hz looks up that often."""
LOOK_SECONDS = 0.01
MOST_FAILURES = 3
MOST_AT_ONCE = 64
"""Processes that are sampled at the same time."""
NEVER_NS = 1 << 63
SUFFIX = ".json"


class Turn:
    """A process's recordings, one after the other."""

    def __init__(self) -> None:
        self.recording: Recording | None = None
        self.number = self.failures = 0
        self.due_ns = 0


class PySpyMonitor:
    """Keeps a py-spy at work on each process that is to be sampled."""

    def __init__(self, journal: JournalWriter, folder: Path, asked: Asked, pythons: Pythons) -> None:
        """Make the folder for the recordings; OSError when that is not possible."""
        folder.mkdir(parents=True, exist_ok=True)
        self._host = host_of(journal)
        self._journal, self._folder, self._asked, self._pythons = journal, folder, asked, pythons
        self._is_dear = bool(asked.attached) or asked.glance
        self._turns: dict[Python, Turn] = {}
        self._used_bytes = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._log = os.open(folder / f"{self._host}.log", flags, 0o600)

    def quick(self, now_ns: int) -> None:
        """Take in what ended and begin what is due."""
        if not self._is_dear:
            self._take_in()
        for python, turn in list(self._turns.items()):
            if turn.recording is not None:
                status = turn.recording.status()
                if status is not None:
                    self._end(turn, turn.recording, status, keep_small=True)
            elif not is_alive(python):
                del self._turns[python]
            elif now_ns >= turn.due_ns:
                self._begin(python, turn)

    def full(self, now_ns: int) -> None:
        """Look for processes where that is too dear for ten times a second."""
        if self._is_dear:
            self._take_in()

    def close(self) -> None:
        """Have all recordings written; what takes too long is given up."""
        deadline = time.monotonic() + FINISH_SECONDS
        running = [(turn, turn.recording) for turn in self._turns.values() if turn.recording is not None]
        for _, recording in running:
            recording.send(signal.SIGINT)
        while running:
            if time.monotonic() > deadline:
                for _, recording in running:
                    recording.send(signal.SIGKILL)
            for turn, recording in list(running):
                status = recording.status()
                if status is not None:
                    running.remove((turn, recording))
                    self._end(turn, recording, status, keep_small=False)
            time.sleep(LOOK_SECONDS)
        os.close(self._log)

    def _take_in(self) -> None:
        for python in self._pythons.fresh():
            if len(self._turns) < MOST_AT_ONCE:
                self._turns.setdefault(python, Turn())
            else:
                self._journal.lost("processes to sample with py-spy", 1)

    def _begin(self, python: Python, turn: Turn) -> None:
        """Start the next recording of a process, and write down when."""
        name = f"{self._host}-{python.pid}-{python.start_ticks}-{turn.number}{SUFFIX}"
        turn.recording = Recording(self._asked, python, self._folder / name)
        turn.number += 1
        self._write(
            "begin", name, python.pid, python.start_ticks, self._asked.rate_hz, turn.recording.began_ns
        )

    def _end(self, turn: Turn, recording: Recording, status: int, keep_small: bool) -> None:
        """Write down how a recording ended, keep it small, and say when the next one is due."""
        said, now_ns = recording.said(), time.monotonic_ns()
        turn.recording = None
        written = written_ns(recording.path)
        if written:
            turn.failures = 0
        elif is_alive(recording.python):
            turn.failures += 1
            self._explain(turn, recording.python, status, said)
        # What hindered a glance is told where somebody misses it (coverage): nobody asked for one, so nobody is warned.
        self._write("end", recording.path.name, written or 0, status, "" if self._asked.glance else said)
        if written:
            if keep_small:
                compress(recording.path)
            self._used_bytes += size(recording.path)
        pause_ns = (self._stride() - 1) * (now_ns - recording.began_ns)
        is_over = turn.failures == MOST_FAILURES or (self._asked.glance and written)
        turn.due_ns = NEVER_NS if is_over else now_ns + pause_ns

    def _explain(self, turn: Turn, python: Python, status: int, said: str) -> None:
        """Say in the coverage why a process is not sampled."""
        why = said or f"py-spy ended with wait status {status}"
        if pyspy_tool.is_refusal(said):
            turn.failures = MOST_FAILURES
            why = "the system refused: " + "; what helps: ".join(pyspy_tool.refused_because(granted=True))
        if turn.failures == MOST_FAILURES:
            self._journal.not_watched("pyspy", f"process {python.pid}: {why}", keep=False)

    def _stride(self) -> int:
        """Return how many times as long as a recording it takes until the next one ends.

        1 at first; it doubles each time when half of the room that was left is used.
        """
        left = 1.0 - self._used_bytes / BUDGET_BYTES
        return LARGEST_STRIDE if left <= 1 / LARGEST_STRIDE else 1 << math.floor(-math.log2(left))

    def _write(self, *fields: object) -> None:
        line = "\t".join(str(field).replace("\t", " ").replace("\n", " ") for field in fields)
        os.write(self._log, line.encode("utf-8", "replace") + b"\n")


def host_of(journal: JournalWriter) -> str:
    """Return this machine's name as the names of its journals have it."""
    return journal.path.name.rsplit("-", 3)[0]


def watch(journal: JournalWriter, run: RunFolder, asked: Asked | None) -> PySpyMonitor | None:
    """Start to sample what was asked for; None when nothing was."""
    if asked is None:
        return None
    if asked.attached:
        return PySpyMonitor(journal, run.py_spy, asked, TreePythons(asked.attached, run.starts))
    find = FirstTrainer if asked.glance else RecordedPythons
    return PySpyMonitor(journal, run.py_spy, asked, find(run.journal, host_of(journal)))
