"""`perfwrap run --live`: `perfwrap top` on the terminal, while the output of the command goes elsewhere.

It is a process of its own that only reads the run folder and writes to the terminal; the keyboard stays the command's.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from perfwrap.launch import process
from perfwrap.launch.signals import OriginalSignals, Supervisor

TERMINAL = Path("/dev/tty")
PATIENCE_SECONDS = 5.0
"""How long it may take to restore the terminal."""
OUTPUTS = (1, 2)


def start(
    folder: Path, environment: Mapping[str, str], original: OriginalSignals, say: Callable[[str], None]
) -> int:
    """Start the view of a run and return its pid; 0, with a message, where it would mix with the command's output."""
    if any(map(os.isatty, OUTPUTS)):
        say(
            "perfwrap: --live needs the terminal for itself: redirect the output of the command (> log.txt 2>&1). "
            f"Or, in another terminal: perfwrap top {folder}"
        )
        return 0
    try:
        os.close(os.open(TERMINAL, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC))
        words = [sys.executable, "-m", "perfwrap", "top", str(folder), "--beside"]
        return process.start(words, environment, original, TERMINAL)
    except OSError as error:
        say(f"perfwrap: no live view: {error.strerror}")
        return 0


def end(pid: int, supervisor: Supervisor) -> None:
    """End the view, which restores the terminal."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while pid not in supervisor.ended and time.monotonic() < deadline:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            return
        supervisor.pause(0.1)
    if pid not in supervisor.ended:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
