"""One run of the unmodified program in a new process: ``perfwrap run`` with its hidden options.

Each run has a folder: ``run/`` is the run folder, ``stdout.txt`` and ``stderr.txt`` have the output of the program and
perfwrap. The run has its own session, so that Ctrl-C at the terminal only reaches the trial.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import psutil
from msgspec import Struct

from perfwrap.experiments.tree_memory import TreeMemory
from perfwrap.launch import overlay_file
from perfwrap.private_files import opener
from perfwrap.run_folder import RunFolder

LOOK_SECONDS = 0.25
"""How often to check whether the run has ended."""
MAX_LAST_WORDS = 1 << 20
"""Bytes at the end of the output that are searched for the last line."""
SEARCH_SECONDS = 2.0
"""How often the journals are searched for the end of the measured steps."""
GRACE_SECONDS = 30.0
"""The time for a program to end after its steps are measured, and again after it was asked to end."""
END_OF_STEPS = b"trial/end"

How = Literal["ended", "too slow", "interrupted"]


class Settings(Struct, frozen=True):
    """The settings of each run."""

    steps: int = 50
    warm_up: str = "auto"
    precision: float = 0.02
    timeout_s: float = 600.0
    allow_writes: bool = False
    grace_s: float = GRACE_SECONDS
    inspect: bool = False
    """Whether the recorder opens dataflow windows; the run ends after them."""
    sample_hz: float = 0.0
    """How often the recorder samples the stacks of the program; 0 for never. A timed run has no samples."""
    overlay: Path | None = None
    """The file of ``launch/overlay_file.py`` with the source files that run edited."""
    values_seed: int | None = None
    """The seed of a run that records losses and parameters instead of times; None for a timed run."""
    perturbation: int = 0
    """The seed of small random changes of the parameters at the start of such a run; 0 for none."""
    least_s: float = 0.0
    """The steady steps of a run take at least this long, unless there are very many."""


class Ended(Struct, frozen=True):
    """How a run ended: by itself, by the time limit or by the user; ``status`` is as in subprocess."""

    folder: Path
    how: How
    status: int
    wall_s: float
    peak_bytes: int | None = None
    """The largest memory of all its processes together, shared pages counted once; None for a timed run."""

    @property
    def run(self) -> RunFolder:
        """The run folder."""
        return RunFolder(self.folder / "run")

    def last_words(self) -> str:
        """Return its last line on standard error, without perfwrap's own lines."""
        with contextlib.suppress(OSError):
            with (self.folder / "stderr.txt").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_LAST_WORDS))
                text = file.read(MAX_LAST_WORDS).decode("utf-8", "replace")
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            return next((line for line in reversed(lines) if not line.startswith("perfwrap:")), "")
        return ""


def run_once(
    command: Sequence[str],
    changes: Sequence[str],
    folder: Path,
    settings: Settings,
    tick: Callable[[float], None],
    limit_s: float,
) -> Ended:
    """Run the command with those changes until its steps are measured, and return how it ended.

    ``tick`` is called with the seconds so far. The run is ended after ``limit_s``, or if the user interrupts; the
    interrupt is returned, not raised.
    """
    folder.mkdir(mode=0o700)
    command = _with_notebooks(command, folder, settings)
    words = [sys.executable, "-m", "perfwrap", "run", *_options(changes, folder, settings), "--", *command]
    # No byte code may be written into the program's folders.
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    if settings.values_seed is not None:
        variables["PYTHONHASHSEED"] = str(settings.values_seed)  # the order of sets
    began = time.monotonic()
    # Reading the memory costs time, which a run that is timed does not have.
    memory = TreeMemory() if settings.values_seed is not None else None
    with (
        open(folder / "stdout.txt", "wb", opener=opener) as out,
        open(folder / "stderr.txt", "wb", opener=opener) as err,
    ):
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=variables, start_new_session=True
        )
    try:
        how = _wait(process, folder / "run", settings, tick, limit_s, memory)
    except KeyboardInterrupt:
        _end(process, signal.SIGINT, settings.grace_s)
        how = "interrupted"
    except BaseException:
        _end(process, signal.SIGTERM, settings.grace_s)
        raise
    peak = memory.peak_bytes if memory is not None else None
    return Ended(folder, how, process.wait(), time.monotonic() - began, peak)


def _with_notebooks(command: Sequence[str], folder: Path, settings: Settings) -> list[str]:
    """Return the command with edited notebooks, which are files in the folder of the run, in place of the originals."""
    edited = overlay_file.read(settings.overlay) if settings.overlay is not None else ()
    words = list(command)
    for file in edited:
        if file.path.suffix == ".ipynb":
            copy = folder / file.path.name
            copy.write_bytes(file.after)
            words = [str(copy) if Path(word).resolve() == file.path else word for word in words]
    return words


def _options(changes: Sequence[str], folder: Path, settings: Settings) -> list[str]:
    """Return the options of ``perfwrap run``."""
    return [
        *("--out", str(folder / "run"), "--no-report"),
        *("--trial-steps", str(settings.steps), "--trial-warm-up", settings.warm_up),
        *("--trial-precision", str(settings.precision), "--trial-seconds", str(settings.least_s)),
        *(["--allow-writes"] if settings.allow_writes else []),
        *(["--inspect"] if settings.inspect else []),
        *(["--sample", str(settings.sample_hz)] if settings.sample_hz else []),
        *(["--overlay", str(settings.overlay)] if settings.overlay is not None else []),
        *(["--trial-values", str(settings.values_seed)] if settings.values_seed is not None else []),
        *(["--trial-perturbation", str(settings.perturbation)] if settings.perturbation else []),
        *(word for change in changes for word in ("--change", change)),
    ]


def _wait(
    process: subprocess.Popen[bytes],
    run: Path,
    settings: Settings,
    tick: Callable[[float], None],
    limit_s: float,
    memory: TreeMemory | None,
) -> How:
    """Wait for the end of the run; end it if its time is over, or if it does not leave its loop."""
    began = searched = time.monotonic()
    measured: float | None = None
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_SECONDS)
            return "ended"
        if memory is not None:
            memory.look([process.pid, *(one.pid for one in _descendants(process.pid))])
        now = time.monotonic()
        tick(now - began)
        if measured is None and now - searched >= SEARCH_SECONDS:
            searched = now
            measured = now if _has_measured(RunFolder(run)) else None
        if measured is not None and now - measured > settings.grace_s:
            # Its steps are measured, so they count even if it does not leave its loop.
            _end(process, signal.SIGTERM, settings.grace_s)
            return "ended"
        if now - began > limit_s:
            _end(process, signal.SIGTERM, settings.grace_s)
            return "too slow"


def _has_measured(folder: RunFolder) -> bool:
    """Return whether a process of the run has recorded that its steps are measured."""
    for path in folder.journal.glob("*.pwj"):
        with (
            contextlib.suppress(OSError, ValueError),
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            if content.find(END_OF_STEPS) >= 0:
                return True
    return False


def _end(process: subprocess.Popen[bytes], number: signal.Signals, grace_s: float) -> None:
    """Ask the run to end, and kill all its processes if it does not; a second Ctrl-C skips the grace period."""
    everybody = _descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
    try:
        process.wait(grace_s)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        everybody += _descendants(process.pid)
        process.kill()
    # Remaining processes would use the cores of the next run.
    _, alive = psutil.wait_procs(everybody, timeout=LOOK_SECONDS)
    for other in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            other.kill()


def _descendants(pid: int) -> list[psutil.Process]:
    """Return all processes that the run has started, including those in other sessions."""
    try:
        found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return found
