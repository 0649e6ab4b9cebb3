"""How far the clocks of a run's hosts differ, from exchanges that no rank can leave before every other has come.

Let a host's times become right when ``offset`` is added to them. In each exchange the first host's ranks leave after
the other's last one has come, and the other way round:

    latest arrival(first) - earliest leave(other)  <=  offset  <=  earliest leave(first) - latest arrival(other)

All exchanges together leave the narrowest such interval; that is the argument of NTP (RFC 5905, section 8: the offset
lies within half the round trip's delay), with exchanges in place of packets. Within it the offset is taken to be the
median difference of when both sides leave, since a collective ends everywhere within a network's latency.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from perfwrap.measures.exchanges import find_exchanges
from perfwrap.measures.steps import find_steps
from perfwrap.measures.trainers import find_trainers
from perfwrap.timeline.clocks import moved
from perfwrap.timeline.model import Timeline

LEAST_EXCHANGES = 5
"""With fewer a single odd one would decide."""


@dataclass(frozen=True)
class ClockOffset:
    """What is to be added to a clock's times, and by how much that may be wrong; nanoseconds.

    ``proven`` where no other offset allows what happened; else the clocks drifted apart, and the error is an estimate.
    """

    offset_ns: int
    error_ns: int
    exchanges: int
    proven: bool


def aligned(timeline: Timeline) -> tuple[Timeline, dict[str, ClockOffset | None]]:
    """Return the timeline with its hosts' clocks put right, and how that was done for each host but the first's.

    None stands for a host of which nothing but its own wall clock tells. Hosts that share a clock share its offset.
    """
    clock_of: dict[str, int] = timeline.run.get("clock_of") or {}
    if len(set(clock_of.values())) < 2:
        return timeline, {}
    tables = []
    for trainer in find_trainers(timeline):
        if trainer.rank is not None:
            table = find_exchanges(timeline, trainer, find_steps(timeline, trainer))
            tables.append(table.with_columns(pl.lit(clock_of.get(trainer.host, -1)).alias("clock")))
    found = find_offsets(pl.concat(tables)) if tables else {}
    offsets = {host: found.get(clock) for host, clock in clock_of.items() if clock}
    moves = {host: offset.offset_ns for host, offset in offsets.items() if offset is not None}
    return moved(timeline, moves), offsets


def find_offsets(exchanges: pl.DataFrame) -> dict[int, ClockOffset]:
    """Return the offset of each clock to clock 0, from the columns step, clock, begin and end of all ranks."""
    sides = exchanges.group_by("clock", "step").agg(
        pl.col("begin").max().alias("came"), pl.col("end").min().alias("left")
    )
    first = sides.filter(pl.col("clock") == 0).drop("clock")
    found = {}
    for clock in sorted(set(sides["clock"].to_list()) - {0, -1}):
        both = first.join(sides.filter(pl.col("clock") == clock), on="step", suffix="_there")
        if both.height >= LEAST_EXCHANGES:
            found[clock] = _offset(both)
    return found


def _offset(both: pl.DataFrame) -> ClockOffset:
    """Return the offset that the exchanges of two clocks allow."""
    least = int((both["came"] - both["left_there"]).max())
    most = int((both["left"] - both["came_there"]).min())
    usual = round((both["left"] - both["left_there"]).median())
    if least > most:
        return ClockOffset(usual, max(abs(least - usual), abs(most - usual)), both.height, False)
    offset = min(max(usual, least), most)
    return ClockOffset(offset, max(offset - least, most - offset), both.height, True)
