"""Brings the clocks of several hosts onto that of the run's first host.

CLOCK_MONOTONIC is comparable between the processes of one host, and only there. Journals carry pairs of
monotonic and wall time; a time of another host goes from its monotonic clock to the wall clock, and from
there to the monotonic clock of the first host. What remains unknown is how far the hosts' wall clocks differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Times: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class HostClock:
    """Pairs of one host, sorted by monotonic time; not empty."""

    monotonic: Times
    wall: Times

    def to_wall(self, monotonic: Times) -> Times:
        """Return wall times, between pairs along the line that joins them, outside along the nearest pair."""
        return monotonic + _offset(monotonic, self.monotonic, self.wall - self.monotonic)

    def from_wall(self, wall: Times) -> Times:
        """Return monotonic times, the inverse of ``to_wall``."""
        return wall - _offset(wall, self.wall, self.wall - self.monotonic)


def host_clock(pairs: list[tuple[int, int]]) -> HostClock:
    """Return the clock that (monotonic, wall) pairs describe."""
    ordered = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    return HostClock(ordered[:, 0], ordered[:, 1])


def to_first_host(times: Times, own: HostClock, first: HostClock) -> Times:
    """Return times of another host on the monotonic clock of the first; unchanged when it is the first."""
    return times if own is first else first.from_wall(own.to_wall(times))


def drift_ns(clock: HostClock) -> int:
    """Return how far the offset between both clocks moved over the pairs: a bound for the mapping's error."""
    offsets = clock.wall - clock.monotonic
    return int(offsets.max() - offsets.min())


def _offset(times: Times, at: Times, offsets: Times) -> Times:
    """Interpolate offsets; relative to the first one, because 2^53 ns is too small for wall times."""
    base = offsets[0]
    moved = np.interp((times - at[0]).astype(np.float64), (at - at[0]).astype(np.float64), offsets - base)
    return np.asarray(np.rint(moved).astype(np.int64) + base)
