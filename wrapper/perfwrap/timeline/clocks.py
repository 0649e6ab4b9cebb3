"""Converts the clocks of several hosts to that of the run's first host.

CLOCK_MONOTONIC is comparable only between the processes of one host. Journals contain pairs of monotonic and wall
time; a time of another host is converted from its monotonic clock to the wall clock, and from there to the
monotonic clock of the first host. The remaining error is the difference between the hosts' wall clocks: exchanges
between ranks show it (``measures/ranks/host_clocks.py``), and ``moved`` corrects it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from perfwrap.timeline.model import TIME_COLUMN, Timeline

Times: TypeAlias = NDArray[np.int64]


class HostClock(Struct, frozen=True):
    """Pairs of one host, sorted by monotonic time; not empty."""

    monotonic: Times
    wall: Times

    def to_wall(self, monotonic: Times) -> Times:
        """Return wall times: interpolated between pairs, outside of them by the offset of the nearest pair."""
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
    """Return how much the offset between both clocks changed over the pairs: a bound for the error."""
    offsets = clock.wall - clock.monotonic
    return int(offsets.max() - offsets.min())


TIMES = {"spans": ("start",), "sums": ("start", "end"), "coverage": ("start", "end")}
"""Columns of a table that are times, besides the column that it is sorted by."""
TIME_FACTS = ("started",)
"""Facts whose value is a time."""


def moved(timeline: Timeline, offsets: Mapping[str, int]) -> Timeline:
    """Return the timeline with the times of some hosts shifted by these offsets in nanoseconds."""
    tracks = timeline.tracks.filter(pl.col("host").is_in(list(offsets)))
    offset_of = {
        track: offsets[host] for track, host in tracks.select("id", "host").iter_rows() if offsets[host]
    }
    if not offset_of:
        return timeline
    offset = pl.col("track").replace_strict(offset_of, default=0, return_dtype=pl.Int64)
    tables = {}
    for table, time in TIME_COLUMN.items():
        if table != "tracks":
            frame = getattr(timeline, table).with_columns(
                pl.col(name) + offset for name in TIMES.get(table, (time,))
            )
            later = -pl.col("duration") if table == "spans" else pl.col(time)
            tables[table] = frame.sort(time, later, maintain_order=True)
    is_time = pl.col("key").is_in(TIME_FACTS)
    value = pl.when(is_time).then((pl.col("value").cast(pl.Int64, strict=False) + offset).cast(pl.String))
    tables["facts"] = tables["facts"].with_columns(value.otherwise("value").alias("value"))
    return replace(timeline, **tables)


def _offset(times: Times, at: Times, offsets: Times) -> Times:
    """Interpolate offsets relative to the first one, because floats are exact only up to 2^53 ns."""
    base = offsets[0]
    moved = np.interp((times - at[0]).astype(np.float64), (at - at[0]).astype(np.float64), offsets - base)
    return np.asarray(np.rint(moved).astype(np.int64) + base)
