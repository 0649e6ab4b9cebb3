"""The stacks of all threads of a process: from py-spy if permitted, else from /proc.

py-spy reads the process's memory without stopping it (``--nonblocking``), and /proc is only read, so the program is
not affected. The program itself is not involved, because that would need a signal or a thread in it.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfwrap.monitors.processes.procfs import read_command
from perfwrap.monitors.pyspy import pyspy_tool
from perfwrap.redaction import masked

PATIENCE_SECONDS = 20
MAX_FRAMES, MAX_THREADS = 100, 64
NOT_THE_USERS = ("/site-packages/", "/dist-packages/", "/lib/python", "<")
"""Parts of file names of libraries, and prefixes of names that are not files."""
ABSENT = "py-spy is not installed: pip install py-spy"


@dataclass(frozen=True)
class Frame:
    """One frame of a stack."""

    function: str
    file: str
    line: int


@dataclass(frozen=True)
class Thread:
    """One thread; its frames from the innermost outwards, none if they could not be read."""

    tid: int
    name: str
    state: str
    """The letter of /proc/PID/stat; S is asleep, D waits for a disk, R runs."""
    wchan: str
    """The kernel function in which it sleeps; empty if unknown."""
    frames: tuple[Frame, ...] = ()

    @property
    def users_frame(self) -> Frame | None:
        """The innermost frame of the user's own code, or else the innermost of all."""
        own = (frame for frame in self.frames if not _is_librarys(frame.file))
        return next(own, self.frames[0] if self.frames else None)


@dataclass(frozen=True)
class Stacks:
    """All threads of a process, the main thread first; ``why`` says why there are no frames."""

    pid: int
    command: str
    threads: tuple[Thread, ...]
    why: str = ""

    @property
    def main(self) -> Thread | None:
        """The main thread."""
        return next((thread for thread in self.threads if thread.tid == self.pid), None)


def take(pid: int, tool: str | None, python: bool = True) -> Stacks:
    """Return the stacks of the threads of a process; py-spy is only used if it is a ``python``."""
    frames: dict[int, tuple[Frame, ...]] = {}
    why = "" if python else "no Python"
    if python and tool is None:
        why = ABSENT
    elif python and tool is not None:
        frames, why = _ask_py_spy(tool, pid)
    threads = tuple(
        Thread(tid, name, state, wchan, frames.get(tid, ()))
        for tid, name, state, wchan in _threads(pid)[:MAX_THREADS]
    )
    return Stacks(pid, read_command(pid), threads, why)


def _ask_py_spy(tool: str, pid: int) -> tuple[dict[int, tuple[Frame, ...]], str]:
    """Return the frames of each thread by its number, or why there are none."""
    command = [tool, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {}, f"py-spy did not respond: {error}"
    if done.returncode:
        if pyspy_tool.is_refusal(done.stderr):
            reason, fix = pyspy_tool.refused_because()
            return {}, f"py-spy may not read this process: {reason}; fix: {fix}"
        return {}, "py-spy failed: " + " ".join(done.stderr.split())[:300]
    try:
        threads = json.loads(done.stdout)
    except ValueError:
        return {}, "the output of py-spy could not be read"
    return {int(thread.get("os_thread_id") or 0): _frames(thread) for thread in threads}, ""


def _frames(thread: dict[str, Any]) -> tuple[Frame, ...]:
    """Return the frames of a thread in the output of py-spy."""
    return tuple(
        Frame(str(frame.get("name")), str(frame.get("filename")), int(frame.get("line") or 0))
        for frame in thread.get("frames", ())[:MAX_FRAMES]
    )


def _threads(pid: int) -> list[tuple[int, str, str, str]]:
    """Return number, name, state and kernel function of each thread, the main one first."""
    found: list[tuple[int, str, str, str]] = []
    try:
        tids = sorted(int(path.name) for path in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []
    for tid in sorted(tids, key=lambda tid: tid != pid):
        place = Path(f"/proc/{pid}/task/{tid}")
        stat = _text(place / "stat")
        state = next(iter(stat.rpartition(")")[2].split()), "?")
        wchan = _text(place / "wchan")
        found.append((tid, masked(_text(place / "comm").strip()), state, "" if wchan == "0" else wchan))
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _is_librarys(file: str) -> bool:
    """Return whether a file belongs to a library."""
    return any(part in file for part in NOT_THE_USERS[:-1]) or file.startswith(NOT_THE_USERS[-1])
