"""Keeps watching cheap: what is dear is done less often."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
SECOND_NS = 1_000_000_000


class Pace:
    """Lets a piece of work be done once a second at most, and never for more than its share of one core."""

    def __init__(self, share: float, least_ns: int = SECOND_NS) -> None:
        self._share, self._least_ns = share, least_ns
        self._due_ns = 0
        self._is_first = True

    def is_due(self, now_ns: int) -> bool:
        """Say whether the work may be done again."""
        return now_ns >= self._due_ns

    def run(self, now_ns: int, work: Callable[[], Value]) -> Value:
        """Do the work, all threads counted, and put off the next time by what it cost.

        The first time does not count: libraries are loaded then, once.
        """
        begin = time.process_time_ns()
        result = work()
        cost = time.process_time_ns() - begin
        self._due_ns = now_ns + max(self._least_ns, 0 if self._is_first else int(cost / self._share))
        self._is_first = False
        return result
