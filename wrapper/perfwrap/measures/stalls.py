"""Stalls that the monitors noticed while the run went: what hung, where, and how it ended."""

from __future__ import annotations

import json
from dataclasses import dataclass

import polars as pl

from perfwrap.measures.lines import Line, line_of
from perfwrap.timeline.model import Timeline

WATCHED = "stalls"
"""``what`` of the coverage of those who look for stalls."""
WENT_ON = "steps went on"
SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Stall:
    """One stall: what was told of it at once, and how it ended."""

    time: int
    """When it was noticed."""
    silent_ns: int
    """How long nothing had moved by then."""
    steps: int
    sentence: str
    missing: tuple[str, ...]
    where: Line | None
    file: str
    """Where the stacks are, within the run folder."""
    lasted_ns: int | None
    """None where nobody wrote down its end: the monitors were killed, or it goes on."""
    how: str

    @property
    def went_on(self) -> bool:
        """Whether it ended by itself."""
        return self.how == WENT_ON


def find_stalls(timeline: Timeline) -> tuple[Stall, ...]:
    """Return the stalls in order."""
    marks = timeline.marks.filter(pl.col("name").is_in(["stall", "stall_end"])).sort("time")
    found: list[Stall] = []
    for time, track, name, detail in marks.select("time", "track", "name", "detail").iter_rows():
        told = _told(detail)
        if name == "stall":
            end = marks.filter(pl.col("track") == track, pl.col("time") > time).head(1)
            ended = end.filter(pl.col("name") == "stall_end")
            found.append(_stall(time, told, _told(ended["detail"][0]) if ended.height else {}))
    return tuple(found)


def is_watched(timeline: Timeline) -> bool:
    """Say whether anybody looked for stalls."""
    rows = timeline.coverage.filter(pl.col("what") == WATCHED, pl.col("end") > pl.col("start"))
    return rows.height > 0


def _told(detail: str | None) -> dict[str, object]:
    """Return what a mark tells; nothing where it was cut short."""
    try:
        told = json.loads(detail or "{}")
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _stall(time: int, told: dict[str, object], end: dict[str, object]) -> Stall:
    """Return what the two marks of a stall tell."""
    where = told.get("where")
    place = where if isinstance(where, dict) else {}
    missing = told.get("missing")
    lasted = end.get("lasted_s")
    return Stall(
        time=time,
        silent_ns=_nanoseconds(told.get("silent_s")) or 0,
        steps=int(str(told.get("steps") or 0)),
        sentence=str(told.get("sentence") or "no step ended"),
        missing=tuple(map(str, missing)) if isinstance(missing, list) else (),
        where=line_of(place.get("file"), place.get("line"), place.get("function")),
        file=str(told.get("file") or ""),
        lasted_ns=_nanoseconds(lasted),
        how=str(end.get("how") or ""),
    )


def _nanoseconds(seconds: object) -> int | None:
    return round(seconds * SECOND_NS) if isinstance(seconds, int | float) else None
