"""Which work had to wait for which other work on a GPU: the order of streams, and events that streams wait for.

A mark ``stream_wait`` on a stream's track says that everything launched there after its time waits for everything that
had been launched before another moment on another stream; its detail is that stream's track and that moment.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from perfwrap.measures.account.loop_events import Integers
from perfwrap.timeline.model import Timeline

MARK = "stream_wait"


def find_awaited(timeline: Timeline, table: pl.DataFrame) -> dict[int, list[int]] | None:
    """Return for each row's index those of the rows that had to end before it could start.

    ``table`` has the columns of EVENT_COLUMNS and a launch in each row. None if no stream waits were recorded.
    """
    marks = timeline.marks.filter(
        pl.col("name") == MARK, pl.col("track").is_in(table["track"].unique().implode())
    )
    if marks.is_empty():
        return None
    streams = _streams(table)
    launched = table["launched"].to_numpy()
    awaited = {
        int(after): [int(before)]
        for places in streams.values()
        for before, after in zip(places[:-1], places[1:], strict=True)
    }
    for time, track, detail in marks.select("time", "track", "detail").iter_rows():
        source, recorded = map(int, detail.split())
        waiting = _first_after(streams[track], launched, time)
        before = _last_before(streams.get(source), launched, recorded)
        if waiting is not None and before is not None:
            awaited.setdefault(waiting, []).append(before)
    return awaited


def _streams(table: pl.DataFrame) -> dict[int, Integers]:
    """Return the indices of each stream's rows, in the order in which they ran."""
    rows = table.select("track").with_row_index("place").group_by("track", maintain_order=True).agg("place")
    return {track: np.array(places, dtype=np.int64) for track, places in rows.iter_rows()}


def _first_after(places: Integers, launched: Integers, moment: int) -> int | None:
    """Return the first of a stream's rows that was launched after a moment: the later ones wait for it anyway."""
    after = places[launched[places] > moment]
    return int(after[0]) if after.size else None


def _last_before(places: Integers | None, launched: Integers, moment: int) -> int | None:
    """Return the last of a stream's rows that was launched before a moment."""
    if places is None:
        return None
    before = places[launched[places] <= moment]
    return int(before[-1]) if before.size else None
