"""How far the trainers are, for those who show it elsewhere: one thread tells, others ask."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from perfwrap.monitors.followed_journals import Followed

NANOSECONDS = 1e-9


class Figures(NamedTuple):
    """One trainer at the last look."""

    rank: str
    """Its number; for a trainer without one how many trainers come before it."""
    steps: int
    step_seconds: float
    """All steps whose duration is known, together, and how many those are."""
    timed_steps: int
    p99_seconds: float
    wait_seconds: float


class Shown:
    """The last that was told."""

    def __init__(self) -> None:
        self.trainers: tuple[Figures, ...] = ()
        self.stalled = False

    def tell(self, trainers: Iterable[Followed], stalled: bool) -> None:
        """Take down how far they are."""
        # Replaced as a whole: who asks meanwhile sees the one or the other.
        self.trainers = tuple(_figures(number, one) for number, one in enumerate(trainers) if one.alive)
        self.stalled = stalled


def _figures(number: int, one: Followed) -> Figures:
    times = one.progress.ends.times
    return Figures(
        str(number if one.rank is None else one.rank),
        one.progress.ends.count,
        times.total_ns * NANOSECONDS,
        times.count,
        times.quantile(0.99) * NANOSECONDS,
        one.progress.wait_ns * NANOSECONDS,
    )
