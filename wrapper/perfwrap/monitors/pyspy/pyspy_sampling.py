"""Runs py-spy to sample the stacks of the training processes and of their DataLoader workers.

By default it samples lightly: the processes that may train, from their start, until one trains; then only that one.

One py-spy per process records for RECORDING_SECONDS and is followed by the next. Its format ``chrometrace`` is
the only one with the time of each change of the stack; ``raw`` has no times, and those of ``speedscope`` are off by
seconds because py-spy samples at random intervals. The start of each recording is in ``tools/py-spy/<host>.log``;
``run_folder.py`` specifies its lines.

Sampling only reads the process's memory (``--nonblocking``), so the program is never stopped, its system
calls are not interrupted, and py-spy can be killed at any time without effect; but ``--native`` stops the process for
each sample. A py-spy ends by itself, with the process that it samples or when its recording is over.
"""

from __future__ import annotations

import math
import os
import signal
import time
from pathlib import Path

from perfwrap.monitors.monitor_journal import JournalWriter
from perfwrap.monitors.processes.pythons import (
    Python,
    Pythons,
    RecordedPythons,
    StartedPythons,
    TreePythons,
    is_alive,
)
from perfwrap.monitors.progress.first_trainer import FirstTrainer
from perfwrap.monitors.progress.likely_trainers import LikelyTrainers
from perfwrap.monitors.pyspy import pyspy_tool
from perfwrap.monitors.pyspy.pyspy_recording import PySpyOptions, Recording, compress, size, written_ns
from perfwrap.run_folder import RunFolder

BUDGET_BYTES = 64 << 20
"""The maximum size of all recordings of a run, compressed: twelve hours of eight processes at 20 Hz."""
LARGEST_STRIDE = 1 << 10
FINISH_SECONDS = 0.6
"""How long writing the last recordings may take; a py-spy at 10 Hz checks for signals that often."""
LOOK_SECONDS = 0.01
MAX_FAILURES = 3
RETRY_NS = 500_000_000
"""The time after a failure; py-spy may not know yet a Python that has just been started."""
MAX_AT_ONCE = 64
"""Processes that are sampled at the same time."""
NEVER_NS = 1 << 63
SUFFIX = ".json"


class Turn:
    """The recordings of a process, one after the other."""

    def __init__(self) -> None:
        self.recording: Recording | None = None
        self.number = self.failures = 0
        self.due_ns = 0
        self.is_over = False


class PySpyMonitor:
    """Keeps a py-spy running for each process to sample."""

    def __init__(self, journal: JournalWriter, folder: Path, options: PySpyOptions, pythons: Pythons) -> None:
        """Create the folder for the recordings; OSError if that is not possible."""
        folder.mkdir(parents=True, exist_ok=True)
        self._host = host_of(journal)
        self._journal, self._folder, self._options, self._pythons = journal, folder, options, pythons
        self._is_expensive = bool(options.attached)
        self._turns: dict[Python, Turn] = {}
        self._used_bytes = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._log = os.open(folder / f"{self._host}.log", flags, 0o600)

    def quick(self, now_ns: int) -> None:
        """Finish recordings that ended and start those that are due."""
        if not self._is_expensive:
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
        """Look for processes, if that is too expensive for ``quick``."""
        if self._is_expensive:
            self._take_in()

    def close(self) -> None:
        """Finish all recordings; those that take too long are dropped."""
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
        found = self._pythons.fresh()
        if isinstance(self._pythons, LikelyTrainers) and self._pythons.chosen is not None:
            self._end_others(self._pythons.chosen)
        for python in found:
            if len(self._turns) < MAX_AT_ONCE:
                self._turns.setdefault(python, Turn())
            else:
                self._journal.lost("processes to sample with py-spy", 1)

    def _end_others(self, chosen: Python) -> None:
        """End the sampling of the processes that do not train."""
        for python, turn in self._turns.items():
            if python != chosen and not turn.is_over:
                turn.is_over, turn.due_ns = True, NEVER_NS
                if turn.recording is not None:
                    turn.recording.send(signal.SIGINT)

    def _begin(self, python: Python, turn: Turn) -> None:
        """Start the next recording of a process, and log the time."""
        name = f"{self._host}-{python.pid}-{python.start_ticks}-{turn.number}{SUFFIX}"
        rate_hz = self._options.rate_of(turn.number)
        turn.recording = Recording(self._options, python, self._folder / name, rate_hz)
        turn.number += 1
        self._write("begin", name, python.pid, python.start_ticks, rate_hz, turn.recording.began_ns)

    def _end(self, turn: Turn, recording: Recording, status: int, keep_small: bool) -> None:
        """Log how a recording ended, compress it, and schedule the next one."""
        said, now_ns = recording.said(), time.monotonic_ns()
        turn.recording = None
        written = written_ns(recording.path)
        if written:
            turn.failures = 0
        elif is_alive(recording.python):
            turn.failures += 1
            self._explain(turn, recording.python, status, said)
        # Why light sampling failed is in the coverage; it is on by default, so there is no warning.
        self._write(
            "end", recording.path.name, written or 0, status, "" if self._options.light_sampling else said
        )
        if written:
            if keep_small:
                compress(recording.path)
            self._used_bytes += size(recording.path)
        pause_ns = (self._stride() - 1) * (now_ns - recording.began_ns)
        is_over = turn.failures == MAX_FAILURES or turn.is_over
        turn.due_ns = NEVER_NS if is_over else now_ns + (pause_ns if written else RETRY_NS)

    def _explain(self, turn: Turn, python: Python, status: int, said: str) -> None:
        """Write into the coverage why a process is not sampled."""
        why = said or f"py-spy ended with wait status {status}"
        if pyspy_tool.is_refusal(said):
            turn.failures = MAX_FAILURES
            why = "py-spy may not read this process: " + "; fix: ".join(
                pyspy_tool.refused_because(granted=True)
            )
        if turn.failures == MAX_FAILURES:
            self._journal.not_watched("pyspy", f"process {python.pid}: {why}", keep=False)

    def _stride(self) -> int:
        """Return the distance between the ends of two recordings, in lengths of a recording.

        It is 1 at first, and doubles each time half of the remaining space is used.
        """
        left = 1.0 - self._used_bytes / BUDGET_BYTES
        return LARGEST_STRIDE if left <= 1 / LARGEST_STRIDE else 1 << math.floor(-math.log2(left))

    def _write(self, *fields: object) -> None:
        line = "\t".join(str(field).replace("\t", " ").replace("\n", " ") for field in fields)
        os.write(self._log, line.encode("utf-8", "replace") + b"\n")


def host_of(journal: JournalWriter) -> str:
    """Return the name of this machine as in the names of its journals."""
    return journal.path.name.rsplit("-", 3)[0]


def watch(journal: JournalWriter, run: RunFolder, options: PySpyOptions | None) -> PySpyMonitor | None:
    """Start to sample the requested processes; None if there are none."""
    if options is None:
        return None
    if options.attached:
        return PySpyMonitor(journal, run.py_spy, options, TreePythons(options.attached, run.starts))
    recorded = RecordedPythons(run.journal, host_of(journal))
    if not options.light_sampling:
        return PySpyMonitor(journal, run.py_spy, options, recorded)
    # Where the system restricts it, a process permits access when it opens its journal.
    candidates = recorded if pyspy_tool.needs_permission() else StartedPythons(run.starts)
    trainers = LikelyTrainers(FirstTrainer(run.journal, host_of(journal)), candidates)
    return PySpyMonitor(journal, run.py_spy, options, trainers)
