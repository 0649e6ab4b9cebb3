"""System calls for which Python has no function; without ctypes they are skipped."""

from __future__ import annotations

import os
import signal
from pathlib import Path

try:
    import ctypes

    _libc: ctypes.CDLL | None = ctypes.CDLL(None)
except (ImportError, OSError):  # This Python was built without libffi.
    _libc = None

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_PTRACER = 1, 4, 15, 0x59616D61
ARGUMENTS_START, ARGUMENTS_END = 48, 49
"""Fields of /proc/PID/stat, as proc(5) counts them."""


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; called right after the fork."""
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have died before the call.
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def forbid_core_dump() -> None:
    """Disable core dumps, also if the kernel pipes them to a program and ignores the limit."""
    if _libc is not None:
        _libc.prctl(PR_SET_DUMPABLE, 0)


def yama_restricts() -> bool:
    """Return whether only the ancestors of a process, and those that it permits, may read it."""
    try:
        return Path("/proc/sys/kernel/yama/ptrace_scope").read_text(encoding="ascii").strip() == "1"
    except OSError:
        return False


def allow_ptrace(pid: int) -> None:
    """Permit that process and its children to trace this one, if Yama requires it; 0 revokes the permission."""
    if _libc is not None:
        _libc.prctl(PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


def look_like(command: list[str]) -> None:
    """Replace the command line of this process that ps, pgrep and pkill show."""
    if _libc is None or not command:
        return
    name = os.fsencode(Path(command[0]).name)
    _libc.prctl(PR_SET_NAME, ctypes.c_char_p(name))
    try:
        fields = Path("/proc/self/stat").read_bytes()
    except OSError:
        return
    words = fields[fields.rindex(b")") + 2 :].split()  # From field 3 on.
    start, end = int(words[ARGUMENTS_START - 3]), int(words[ARGUMENTS_END - 3])
    text = b"\0".join(os.fsencode(word) for word in command)
    if 0 < start < end:
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, text, min(len(text), end - start - 1))
