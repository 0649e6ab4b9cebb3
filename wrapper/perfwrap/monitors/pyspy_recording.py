"""One recording of py-spy's: the process that makes it, its file, and what became of it."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from perfwrap.monitors.pythons import Python

RECORDING_SECONDS = 60
"""What a SIGKILL of py-spy can cost; between two recordings lies about a tenth of a second."""
GLANCE_SECONDS = 30


@dataclass(frozen=True)
class Asked:
    """What the user asked of py-spy."""

    tool: str
    rate_hz: float
    native: bool = False
    attached: int = 0
    """The first process of a job that runs already, all of which is sampled; 0 samples the recorded processes."""
    glance: bool = False
    """Whether one recording of GLANCE_SECONDS, of one process that trains, is all."""


class Recording:
    """One py-spy at work on one process."""

    def __init__(self, asked: Asked, python: Python, path: Path) -> None:
        """Start it; OSError when that is not possible."""
        self.python, self.path, self._said = python, path, path.with_suffix(".said")
        how = "--native" if asked.native else "--nonblocking"
        command = [
            asked.tool,
            "record",
            "--format",
            "chrometrace",
            "--idle",
            "--threads",
            "--full-filenames",
            how,
        ]
        seconds = GLANCE_SECONDS if asked.glance else RECORDING_SECONDS
        command += ["--rate", f"{asked.rate_hz:.0f}", "--duration", str(seconds)]
        command += ["--pid", str(python.pid), "--output", str(path)]
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, str(self._said), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
        ]
        self.began_ns = time.monotonic_ns()
        # A process group of its own: Ctrl-C is for the program. The sidecar blocks all signals, and in a script's
        # background SIGINT is ignored; py-spy must do neither.
        self.pid = os.posix_spawn(
            asked.tool,
            command,
            os.environ,
            file_actions=actions,
            setpgroup=0,
            setsigmask=(),
            setsigdef=(signal.SIGINT,),
        )

    def status(self) -> int | None:
        """Return how it ended, None while it has not."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return None if pid == 0 else status

    def send(self, number: int) -> None:
        """Send it a signal; SIGINT has it write what it has."""
        os.kill(self.pid, number)

    def said(self) -> str:
        """Return what it complained of in one line, and forget it."""
        try:
            lines = self._said.read_text(encoding="utf-8", errors="replace").splitlines()
            self._said.unlink()
        except OSError:
            return ""
        told = [line.strip() for line in lines if line.startswith(("Error", "Reason", "Permission"))]
        return " ".join("; ".join(told).split())


def written_ns(path: Path) -> int | None:
    """Return when a file was written, on the monotonic clock; None when it was not."""
    try:
        written = path.stat()
    except OSError:
        return None
    return time.monotonic_ns() - (time.time_ns() - written.st_mtime_ns) if written.st_size else None


def compress(path: Path) -> None:
    """Replace a recording by a compressed one, in one step; leave it as it is where that fails."""
    small = path.with_name(f".{path.name}.gz")
    try:
        with open(path, "rb") as file, gzip.open(small, "wb", compresslevel=1) as target:
            shutil.copyfileobj(file, target)
        small.replace(path.with_name(path.name + ".gz"))
        path.unlink()
    except OSError:
        small.unlink(missing_ok=True)


def size(path: Path) -> int:
    """Return the bytes that a recording takes, compressed or not."""
    for found in (path, path.with_name(path.name + ".gz")):
        if found.exists():
            return found.stat().st_size
    return 0
