"""The progress of the trainers, published by one thread and read by others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from perfwrap.monitors.progress.followed_journals import Followed

NANOSECONDS = 1e-9


class Figures(NamedTuple):
    """One trainer at the last update."""

    rank: str
    """Its rank; without one, the number of trainers before it."""
    steps: int
    step_seconds: float
    """The total duration of all steps whose duration is known, and their number."""
    timed_steps: int
    p99_seconds: float
    wait_seconds: float


class SharedProgress:
    """The last published state."""

    def __init__(self) -> None:
        self.trainers: tuple[Figures, ...] = ()
        self.stalled = False

    def publish(self, trainers: Iterable[Followed], stalled: bool) -> None:
        """Publish the current progress."""
        # Replaced as a whole, so that readers see either the old or the new state.
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
