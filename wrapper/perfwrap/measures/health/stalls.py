"""Stalls that the monitors detected during the run: what hung, where, and how it ended."""

from __future__ import annotations

import json

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.lines import Line, line_of
from perfwrap.timeline.model import Timeline

MONITORED = "stalls"
"""``what`` of the coverage rows of the stall monitor."""
RESUMED = "steps resumed"
SECOND_NS = 1_000_000_000


class Stall(Struct, frozen=True):
    """One stall: what was known at once, and how it ended."""

    time: int
    """When it was detected."""
    silent_ns: int
    """How long there was no progress at that time."""
    steps: int
    sentence: str
    missing: tuple[str, ...]
    where: Line | None
    file: str
    """Where the stacks are, within the run folder."""
    lasted_ns: int | None
    """None if its end was not recorded: the monitors were killed, or it continues."""
    how: str

    @property
    def went_on(self) -> bool:
        """Whether it ended by itself."""
        return self.how == RESUMED


def find_stalls(timeline: Timeline) -> tuple[Stall, ...]:
    """Return the stalls in order."""
    marks = timeline.marks.filter(pl.col("name").is_in(["stall", "stall_end"])).sort("time")
    found: list[Stall] = []
    for time, track, name, detail in marks.select("time", "track", "name", "detail").iter_rows():
        content = _content(detail)
        if name == "stall":
            end = marks.filter(pl.col("track") == track, pl.col("time") > time).head(1)
            ended = end.filter(pl.col("name") == "stall_end")
            found.append(_stall(time, content, _content(ended["detail"][0]) if ended.height else {}))
    return tuple(found)


def is_watched(timeline: Timeline) -> bool:
    """Return whether stalls were monitored."""
    rows = timeline.coverage.filter(pl.col("what") == MONITORED, pl.col("end") > pl.col("start"))
    return rows.height > 0


def _content(detail: str | None) -> dict[str, object]:
    """Return the content of a mark; nothing if it is truncated."""
    try:
        content = json.loads(detail or "{}")
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _stall(time: int, content: dict[str, object], end: dict[str, object]) -> Stall:
    """Return a stall from its two marks."""
    where = content.get("where")
    place = where if isinstance(where, dict) else {}
    missing = content.get("missing")
    lasted = end.get("lasted_s")
    return Stall(
        time=time,
        silent_ns=_nanoseconds(content.get("silent_s")) or 0,
        steps=int(str(content.get("steps") or 0)),
        sentence=str(content.get("sentence") or "no step ended"),
        missing=tuple(map(str, missing)) if isinstance(missing, list) else (),
        where=line_of(place.get("file"), place.get("line"), place.get("function")),
        file=str(content.get("file") or ""),
        lasted_ns=_nanoseconds(lasted),
        how=str(end.get("how") or ""),
    )


def _nanoseconds(seconds: object) -> int | None:
    return round(seconds * SECOND_NS) if isinstance(seconds, int | float) else None
