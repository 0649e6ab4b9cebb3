"""The common part of the faults of faults.py: the program, bare and wrapped, and the checks of both."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from perfwrap.commands.report import report
from perfwrap.errors import PerfwrapError
from perfwrap.journal_format import SPANS, SUM
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals.journal_file import Unreadable, read_file

LOOP = Path(__file__).with_name("training.py")
LIMIT_SECONDS = 600
LOOK_SECONDS = 0.005
OPTIMIZER = SPANS["OPTIMIZER"]


class Skipped(Exception):
    """The fault is impossible on this machine; the text is the reason."""


@dataclass(frozen=True)
class Ended:
    """How a program ended, and its output."""

    code: int
    output: list[str]
    errors: str

    @property
    def steps(self) -> int:
        """The number of its last printed step."""
        counted = [line for line in self.output if line.startswith("step ")]
        return int(counted[-1].split()[1]) if counted else 0

    @property
    def said(self) -> list[str]:
        """The part that is the same in each run."""
        return [line for line in self.output if not line.startswith("pid ")]


class Running:
    """A command in its own session, whose output goes to files."""

    def __init__(self, words: list[str], place: Path, **settings: Any) -> None:
        self._output, self._errors = place / "output", place / "errors"
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                cwd=place,
                **settings,
            )

    def lines(self) -> list[str]:
        """Return the whole lines that were printed so far."""
        return self._output.read_text().rpartition("\n")[0].splitlines()

    def wait_for(self, found: Callable[[], Any], what: str) -> Any:
        """Return the first true value; None if the command has ended without one."""
        until = time.monotonic() + LIMIT_SECONDS
        while not (value := found()):
            if self.process.poll() is not None:
                return found() or None
            if time.monotonic() > until:
                raise TimeoutError(f"timed out waiting for {what}")
            time.sleep(LOOK_SECONDS)
        return value

    def wait_for_step(self, number: int = 1) -> None:
        """Wait until the program has printed that step, or has ended."""
        self.wait_for(lambda: f"step {number}" in self.lines(), f"step {number}")

    def pid(self) -> int:
        """Wait for the program to print its pid and return it; 0 if it ended before."""
        lines = self.wait_for(lambda: [line for line in self.lines() if line.startswith("pid ")], "the pid")
        return int(lines[0].split()[1]) if lines else 0

    def monitors(self) -> int:
        """Return the pid of the monitors' process; 0 if it has ended."""

        def find() -> int:
            words = ((pid, _read(f"/proc/{pid}/cmdline")) for pid in children(self.process.pid))
            return next((pid for pid, found in words if b"perfwrap.monitors" in found), 0)

        return self.wait_for(find, "the monitors") or 0

    def end(self) -> Ended:
        """Wait for the command to end, then kill the remaining processes of its session."""
        try:
            code = self.process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            code = LIMIT_SECONDS
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        return Ended(code, self._output.read_text().splitlines(), self._errors.read_text(errors="replace"))

    def left(self) -> list[int]:
        """Return the processes of the session that are still running."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            words = _read(f"{place}/stat").rpartition(b")")[2].split()
            if len(words) > 3 and int(words[3]) == self.process.pid and words[0] not in (b"Z", b"X"):
                found.append(int(place.name))
        return found


@dataclass
class Trial:
    """One round of one fault: its folder, its random numbers, and the problems found."""

    place: Path
    chance: random.Random
    long: bool = False
    steps: int = 400
    problems: list[str] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)
    known: dict[Any, Ended] = field(default_factory=dict)
    """What the program does without perfwrap, by its arguments; shared by all trials."""

    @property
    def folder(self) -> Path:
        """The run folder, unless a fault puts it elsewhere."""
        return self.place / "run"

    def expect(self, is_so: object, problem: str) -> bool:
        """Add the problem unless ``is_so``."""
        if not is_so:
            self.problems.append(problem)
        return bool(is_so)

    def bare(self, workers: int = 0, key: object = None, **settings: Any) -> Ended:
        """Return how the program ends without perfwrap; ``key`` distinguishes settings."""
        name = (self.steps, workers, key)
        if name not in self.known:
            self.known[name] = Running(self.program(workers), self.place, **settings).end()
        return self.known[name]

    def start(
        self, workers: int = 0, out: Path | None = None, options: tuple[str, ...] = (), **settings: Any
    ) -> Running:
        """Start the program under perfwrap, each step of it in detail."""
        words = [
            "run",
            "--no-report",
            "--max-overhead",
            "100%",
            "--out",
            str(out or self.folder),
            *options,
            "--",
        ]
        return Running(
            [sys.executable, "-m", "perfwrap", *words, *self.program(workers)], self.place, **settings
        )

    def program(self, workers: int) -> list[str]:
        """Return the command without perfwrap."""
        return [sys.executable, str(LOOP), str(self.steps), str(workers)]

    def expect_same(self, ended: Ended, bare: Ended) -> None:
        """Expect the same output and exit code as without perfwrap."""
        self.expect(
            ended.code == bare.code, f"exit {ended.code} instead of {bare.code}: {ended.errors[-300:]}"
        )
        self._expect_output(ended.said, bare.said)

    def expect_part(self, ended: Ended, bare: Ended, codes: tuple[int, ...]) -> None:
        """Expect the beginning of the output without perfwrap, and one of these exit codes."""
        self.expect(ended.code in codes, f"exit {ended.code} instead of {codes}: {ended.errors[-300:]}")
        self._expect_output(ended.said, bare.said[: len(ended.said)])

    def _expect_output(self, said: list[str], bare: list[str]) -> None:
        pairs = enumerate(zip_longest(said, bare), 1)
        where = next(
            (f"line {line}, {one!r} instead of {other!r}" for line, (one, other) in pairs if one != other), ""
        )
        self.expect(not where, f"its output differs: {where}")

    def expect_steps(self, counted: int, folder: Path | None = None) -> None:
        """Expect each step that the program had counted in the journals, and at most one more."""
        recorded = recorded_steps(folder or self.folder)
        self.expect(counted <= recorded <= counted + 1, f"{counted} steps counted, {recorded} recorded")

    def expect_readable(self, folder: Path | None = None) -> Mapping[str, Any]:
        """Expect that `perfwrap report` reads the run; return its document, empty if it does not."""
        said = io.BytesIO()
        stream = io.TextIOWrapper(said)
        try:
            with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(io.StringIO()):
                report(folder or self.folder, format="json")
        except PerfwrapError as error:
            self.problems.append(f"perfwrap report: {error}")
            return {}
        stream.flush()
        return dict(json.loads(said.getvalue()))


def recorded_steps(folder: Path) -> int:
    """Return how many steps of optimizers are in the journals of a run, in detail or counted."""
    steps = 0
    for path in RunFolder(folder).journal.glob("*.pwj"):
        try:
            records = read_file(path).records
        except Unreadable:
            continue  # Its writer was killed before it had written the header.
        kinds = records["kind"]
        steps += int(np.count_nonzero(kinds == OPTIMIZER))
        steps += int(records["value"][kinds == (OPTIMIZER | SUM)].sum())
    return steps


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    return [int(found) for found in _read(f"/proc/{pid}/task/{pid}/children").split()]


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it has ended."""
    words = _read(f"/proc/{pid}/statm").split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if words else 0


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
