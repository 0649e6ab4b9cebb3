"""Which work had to wait for which other work on a GPU: the order of streams, and events that streams wait for.

A mark ``stream_wait`` on a stream's track says that everything launched there after its time waits for everything that
had been launched before another moment on another stream; its detail is that stream's track and that moment.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.loop_events import Integers
from perfwrap.timeline.model import Timeline

MARK = "stream_wait"


class Awaited(Struct, frozen=True):
    """Of each row of a table, by its index, the rows that had to end before it could start."""

    previous: Integers
    """The previous row on its stream, -1 for the first."""
    others: dict[int, list[int]]
    """The last rows that were launched on other streams before the moments for which its stream waited."""

    def of(self, row: int) -> list[int]:
        """Return the rows that had to end before a row could start."""
        previous = int(self.previous[row])
        return [*([previous] if previous >= 0 else []), *self.others.get(row, ())]


class Stream(Struct, frozen=True):
    """The rows of one stream in the order in which they ran."""

    places: Integers
    latest: Integers
    """The last launch of each row and those before it."""
    earliest: Integers
    """The first launch of each row and those after it."""

    def first_after(self, moment: int) -> int | None:
        """Return the first row that was launched after a moment: the later ones wait for it anyway."""
        place = int(np.searchsorted(self.latest, moment, side="right"))
        return int(self.places[place]) if place < self.places.size else None

    def last_before(self, moment: int) -> int | None:
        """Return the last row that was launched before a moment."""
        place = int(np.searchsorted(self.earliest, moment, side="right")) - 1
        return int(self.places[place]) if place >= 0 else None


def find_awaited(timeline: Timeline, table: pl.DataFrame) -> Awaited | None:
    """Return which rows had to end before each row could start; None if no stream waits were recorded.

    ``table`` has the columns of EVENT_COLUMNS and a launch in each row.
    """
    marks = timeline.marks.filter(
        pl.col("name") == MARK, pl.col("track").is_in(table["track"].unique().implode())
    )
    if marks.is_empty():
        return None
    streams = _streams(table)
    previous = np.full(table.height, -1, dtype=np.int64)
    for stream in streams.values():
        previous[stream.places[1:]] = stream.places[:-1]
    others: dict[int, list[int]] = {}
    for time, track, detail in marks.select("time", "track", "detail").iter_rows():
        source, recorded = map(int, detail.split())
        waiting = streams[track].first_after(time)
        before = streams[source].last_before(recorded) if source in streams else None
        if waiting is not None and before is not None:
            others.setdefault(waiting, []).append(before)
    return Awaited(previous, others)


def _streams(table: pl.DataFrame) -> dict[int, Stream]:
    """Return each stream's rows."""
    launched, track = table["launched"].to_numpy(), table["track"].to_numpy()
    found = {}
    for number in table["track"].unique().to_list():
        places = np.flatnonzero(track == number)
        times = launched[places]
        earliest = np.minimum.accumulate(times[::-1])[::-1]
        found[number] = Stream(places, np.maximum.accumulate(times), earliest)
    return found
