"""Allows exactly one process to ptrace this one, if the launcher asks for it (``ptracer_pid``).

Where Yama restricts ptrace to a process's ancestors (``kernel.yama.ptrace_scope`` is 1), a monitor in another
process may not attach; PR_SET_PTRACER names the one that may. A child does not inherit that.
"""

from __future__ import annotations

from perfwrap_recorder.journal import journal

PR_SET_PTRACER = 0x59616D61


def allow(pid):
    """Allow the process to attach and write the result; return 0 or the system's error number."""
    import ctypes  # only here: other processes do not load it

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    error = ctypes.get_errno() if prctl(PR_SET_PTRACER, pid, 0, 0, 0) else 0
    journal.fact("ptracer", "%d: %s" % (pid, "error %d" % error if error else "allowed"))
    return error


def allow_asked():
    """Allow the process that the launcher named, if any."""
    pid = getattr(journal.settings, "ptracer_pid", 0)
    if pid:
        allow(pid)
