"""End a stalled command where the user asked for it: SIGTERM as the launcher passes it on, SIGKILL after a while."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from perfwrap.monitors.pythons import Python, is_alive

SECOND_NS = 1_000_000_000


class Killer:
    """What ``--kill-on-stall`` does, step by step; it is asked again and again."""

    def __init__(self, launcher: int, grace_seconds: float) -> None:
        self._launcher, self._grace_ns = launcher, int(grace_seconds * SECOND_NS)
        self._asked_ns = 0

    @property
    def has_begun(self) -> bool:
        """Whether the command was asked to end."""
        return self._asked_ns > 0

    def ask(self, now_ns: int) -> None:
        """Ask the command to end.

        To the launcher this is a SIGTERM like any other: it passes it on to the command and to nobody else.
        """
        self._asked_ns = now_ns
        os.kill(self._launcher, signal.SIGTERM)

    def insist(self, now_ns: int, members: Mapping[int, int]) -> bool:
        """Kill what is left of the command's processes (start ticks by pid) once the time is up; say whether it was."""
        if not self._asked_ns or now_ns - self._asked_ns < self._grace_ns:
            return False
        for pid, ticks in members.items():
            if is_alive(Python(pid, ticks)):
                _kill(pid)
        return True


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # Gone meanwhile, or another user's.
