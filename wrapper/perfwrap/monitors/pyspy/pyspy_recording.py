"""One recording of py-spy: its process, its file, and how it ended."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from perfwrap.monitors.processes.pythons import Python

RECORDING_SECONDS = 60
"""The length of a recording, which a SIGKILL of py-spy loses; the gap between two is about a tenth of a second."""
FIRST_HZ = 25.0
"""The rate of light sampling in the first recording: in short runs, fewer samples would name no line. It takes 0.3 % of
a core more than 10 Hz."""
LIGHT_HZ = 10.0
LATER_HZ = 2.0
"""The rate of light sampling after LIGHT_RECORDINGS; a lower one would delay the end of the run."""
LIGHT_RECORDINGS = 5


@dataclass(frozen=True)
class PySpyOptions:
    """The options of the user for py-spy."""

    tool: str
    rate_hz: float
    native: bool = False
    attached: int = 0
    """The first process of a running job, all of which is sampled; 0 samples the recorded processes."""
    light_sampling: bool = False
    """Whether to sample one training process only, with few samples per second."""

    def rate_of(self, number: int) -> float:
        """Return the rate of the recording of a process with this number, from 0."""
        if not self.light_sampling:
            return self.rate_hz
        if number == 0:
            return FIRST_HZ
        return LIGHT_HZ if number < LIGHT_RECORDINGS else LATER_HZ


class Recording:
    """A running py-spy that samples one process."""

    def __init__(self, options: PySpyOptions, python: Python, path: Path, rate_hz: float) -> None:
        """Start it; OSError if that is not possible."""
        self.rate_hz = rate_hz
        self.python, self.path, self._said = python, path, path.with_suffix(".said")
        how = "--native" if options.native else "--nonblocking"
        command = [
            options.tool,
            "record",
            "--format",
            "chrometrace",
            "--idle",
            "--threads",
            "--full-filenames",
            how,
        ]
        command += ["--rate", f"{rate_hz:.0f}", "--duration", str(RECORDING_SECONDS)]
        command += ["--pid", str(python.pid), "--output", str(path)]
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, str(self._said), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
        ]
        self.began_ns = time.monotonic_ns()
        # It gets its own process group: Ctrl-C is for the program. The sidecar blocks all signals, and in a script's
        # background SIGINT is ignored; py-spy must do neither.
        self.pid = os.posix_spawn(
            options.tool,
            command,
            os.environ,
            file_actions=actions,
            setpgroup=0,
            setsigmask=(),
            setsigdef=(signal.SIGINT,),
        )

    def status(self) -> int | None:
        """Return its wait status, or None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return None if pid == 0 else status

    def send(self, number: int) -> None:
        """Send it a signal; on SIGINT it writes its recording."""
        os.kill(self.pid, number)

    def said(self) -> str:
        """Return its error messages in one line, and delete them."""
        try:
            lines = self._said.read_text(encoding="utf-8", errors="replace").splitlines()
            self._said.unlink()
        except OSError:
            return ""
        messages = [line.strip() for line in lines if line.startswith(("Error", "Reason", "Permission"))]
        return " ".join("; ".join(messages).split())


def written_ns(path: Path) -> int | None:
    """Return when a file was written, on the monotonic clock; None if it was not."""
    try:
        written = path.stat()
    except OSError:
        return None
    return time.monotonic_ns() - (time.time_ns() - written.st_mtime_ns) if written.st_size else None


def compress(path: Path) -> None:
    """Replace a recording by a compressed one, in one step; leave it unchanged if that fails."""
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
