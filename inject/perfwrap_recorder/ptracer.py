"""Lets exactly one process look into this one, where the launcher asked for it (``ptracer_pid``).

Where Yama restricts ptrace to a process's ancestors (``kernel.yama.ptrace_scope`` is 1), a monitor beside the
program may not attach to it; PR_SET_PTRACER names the one that may. A child does not inherit that.
"""

from __future__ import annotations

from perfwrap_recorder import journal

PR_SET_PTRACER = 0x59616D61


def allow(pid):
    """Allow the process to attach, and say how that went; return 0 or the system's error number."""
    import ctypes  # only here: it is loaded in no process that was not asked for this

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    error = ctypes.get_errno() if prctl(PR_SET_PTRACER, pid, 0, 0, 0) else 0
    journal.fact("ptracer", "%d: %s" % (pid, "error %d" % error if error else "allowed"))
    return error


def allow_asked():
    """Do so where the launcher asked for it."""
    pid = getattr(journal.settings, "ptracer_pid", 0)
    if pid:
        allow(pid)
