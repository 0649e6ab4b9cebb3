"""Out-of-memory errors of torch on a GPU, and what used the memory."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.journal_format import FIELD_SEPARATOR
from perfwrap.measures.account.lines import Line, line_of, parse_line
from perfwrap.timeline.model import Timeline

NUMBERS = ("device", "asked", "limit", "free", "allocated", "reserved")
"""The first fields of the mark's detail; file, line and function follow."""


class GpuShortage(Struct, frozen=True):
    """One error; bytes, None if not recorded."""

    time: int
    where: Line | None
    asked: int | None
    free: int | None
    allocated: int | None
    reserved: int | None

    @property
    def idle_reserve(self) -> int | None:
        """Memory that torch had reserved and nothing used."""
        if self.reserved is None or self.allocated is None:
            return None
        return self.reserved - self.allocated


class LiveBlocks(Struct, frozen=True):
    """Live blocks that one line allocated."""

    where: Line | None
    bytes: int


def find_shortages(timeline: Timeline) -> dict[int, tuple[GpuShortage, ...]]:
    """Return the errors of each process, by its track, in order."""
    parents = dict(timeline.tracks.filter(pl.col("kind") == "thread").select("id", "parent").iter_rows())
    found: dict[int, tuple[GpuShortage, ...]] = {}
    marks = timeline.marks.filter(pl.col("name") == "out_of_memory").sort("time")
    for time, track, detail in marks.select("time", "track", "detail").iter_rows():
        process = parents.get(track, track)
        found[process] = (*found.get(process, ()), _shortage(time, detail or ""))
    return found


def find_live_blocks(timeline: Timeline, process: int) -> tuple[LiveBlocks, ...]:
    """Return what used the memory at the last error with a snapshot, most bytes first."""
    rows = timeline.marks.filter(pl.col("name") == "live_block", pl.col("track") == process)
    rows = rows.filter(pl.col("time") == pl.col("time").max()).with_columns(pl.col("value").cast(pl.Int64))
    lines = rows.group_by("file", "line").agg(pl.col("function").first(), pl.col("value").sum())
    return tuple(
        LiveBlocks(line_of(row["file"], row["line"], row["function"]), row["value"])
        for row in lines.sort("value", "line", descending=True).iter_rows(named=True)
    )


def _shortage(time: int, detail: str) -> GpuShortage:
    """Return the content of a mark."""
    fields = detail.split(FIELD_SEPARATOR)
    numbers = {
        name: int(text) if text.lstrip("-").isdecimal() else None
        for name, text in zip(NUMBERS, fields, strict=False)
    }
    return GpuShortage(
        time,
        parse_line(FIELD_SEPARATOR.join(fields[len(NUMBERS) :])),
        *(numbers.get(name) for name in ("asked", "free", "allocated", "reserved")),
    )
