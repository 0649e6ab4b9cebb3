"""End a stalled command if requested: SIGTERM through the launcher, SIGKILL after the grace period."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from perfwrap.monitors.processes.pythons import Python, is_alive

SECOND_NS = 1_000_000_000


class Killer:
    """Implements ``--kill-on-stall``, step by step; called periodically."""

    def __init__(self, launcher: int, grace_seconds: float) -> None:
        self._launcher, self._grace_ns = launcher, int(grace_seconds * SECOND_NS)
        self._asked_ns = 0

    @property
    def has_begun(self) -> bool:
        """Whether the command has received SIGTERM."""
        return self._asked_ns > 0

    def ask(self, now_ns: int) -> None:
        """Ask the command to end.

        To the launcher this is a SIGTERM like any other: it forwards it to the command only.
        """
        self._asked_ns = now_ns
        os.kill(self._launcher, signal.SIGTERM)

    def insist(self, now_ns: int, members: Mapping[int, int]) -> bool:
        """Kill the remaining processes (start ticks by pid) after the grace period; return whether it did."""
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
