"""Sample many things in turn, as often as a share of one core allows.

The cost of a sample depends on the machine and on the process, so it is measured: members that were not sampled for
the longest time come first, and when the time is used up, the others wait for the next round.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

SECOND_NS = 1_000_000_000


class Ends(Protocol):
    """Something that is sampled until it has ended."""

    ended: bool


Sampled = TypeVar("Sampled", bound=Ends)


class Round(Generic[Sampled]):
    """Samples each of its members at most every ``interval_ns``, with at most ``share`` of a core."""

    def __init__(self, share: float, most_ns: int, interval_ns: int) -> None:
        """``most_ns`` limits the time that may be saved up to sample many at once."""
        self._share, self._most_ns, self._interval_ns = share, most_ns, interval_ns
        self._left_ns = float(most_ns)
        self._last_ns = 0
        self._members: deque[tuple[int, Sampled]] = deque()

    def enter(self, member: Sampled, now_ns: int = 0) -> None:
        """Add a member that is sampled next, or, as if it had just been sampled, an interval later."""
        if now_ns:
            self._members.append((now_ns, member))
        else:
            self._members.appendleft((0, member))

    def go(self, now_ns: int, look: Callable[[Sampled], None]) -> None:
        """Sample the members that are due, as long as time is left."""
        earned = self._share * max(0, min(now_ns - self._last_ns, 60 * SECOND_NS))
        self._left_ns = min(self._most_ns, self._left_ns + earned)
        self._last_ns = now_ns
        self._members = deque(entry for entry in self._members if not entry[1].ended)
        begin_ns = time.thread_time_ns()
        spent_ns = 0
        for _ in range(len(self._members)):
            last_ns, member = self._members[0]
            if spent_ns >= self._left_ns or (last_ns and 0 <= now_ns - last_ns < self._interval_ns):
                break
            look(member)
            self._members.popleft()
            self._members.append((now_ns, member))
            spent_ns = time.thread_time_ns() - begin_ns
        self._left_ns -= spent_ns
