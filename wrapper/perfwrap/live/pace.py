"""Limits the cost of following a run: expensive work is done less often."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
SECOND_NS = 1_000_000_000


class Pace:
    """Limits a piece of work to once a second, and to its share of one core."""

    def __init__(self, share: float, least_ns: int = SECOND_NS) -> None:
        self._share, self._least_ns = share, least_ns
        self._due_ns = 0
        self._is_first = True

    def is_due(self, now_ns: int) -> bool:
        """Return whether the work is due."""
        return now_ns >= self._due_ns

    def run(self, now_ns: int, work: Callable[[], Value]) -> Value:
        """Do the work, and delay the next time according to its CPU time, with all threads.

        The first time is not counted, because it also loads libraries.
        """
        begin = time.process_time_ns()
        result = work()
        cost = time.process_time_ns() - begin
        self._due_ns = now_ns + max(self._least_ns, 0 if self._is_first else int(cost / self._share))
        self._is_first = False
        return result
