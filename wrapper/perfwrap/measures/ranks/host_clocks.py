"""The clock differences between a run's hosts, from exchanges that no rank can leave before every other has arrived.

A host's times become correct by adding ``offset`` to them. In each exchange the first host's ranks leave after the last
rank of the other host has arrived, and vice versa:

    latest arrival(first) - earliest leave(other)  <=  offset  <=  earliest leave(first) - latest arrival(other)

All exchanges together give the narrowest such interval; this is the argument of NTP (RFC 5905, section 8: the offset is
within half the round-trip delay), with exchanges in place of packets. Within it the offset is the median difference of
the leave times of both sides, because a collective ends everywhere within the latency of the network.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.exchanges import find_exchanges
from perfwrap.measures.trainers import find_trainers
from perfwrap.timeline.clocks import moved
from perfwrap.timeline.model import Timeline

MIN_EXCHANGES = 5
"""With fewer, a single outlier would decide."""


class ClockOffset(Struct, frozen=True):
    """The value to add to a clock's times, and its maximum error; nanoseconds.

    ``proven`` if no other offset is consistent with the exchanges; otherwise the clocks drifted, and the error is an
    estimate.
    """

    offset_ns: int
    error_ns: int
    exchanges: int
    proven: bool


def aligned(timeline: Timeline) -> tuple[Timeline, dict[str, ClockOffset | None]]:
    """Return the timeline with corrected host clocks, and the offset of each host except the first.

    None means a host of which only the wall clock is known. Hosts that share a clock share its offset.
    """
    clock_of: dict[str, int] = timeline.run.get("clock_of") or {}
    if len(set(clock_of.values())) < 2:
        return timeline, {}
    tables = []
    evidence = Evidence(timeline)
    for trainer in evidence.get(find_trainers):
        if trainer.rank is not None:
            table = find_exchanges(evidence, trainer)
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
        if both.height >= MIN_EXCHANGES:
            found[clock] = _offset(both)
    return found


def _offset(both: pl.DataFrame) -> ClockOffset:
    """Return the offset that is consistent with the exchanges of two clocks."""
    least = int((both["came"] - both["left_there"]).max())
    most = int((both["left"] - both["came_there"]).min())
    usual = round((both["left"] - both["left_there"]).median())
    if least > most:
        return ClockOffset(usual, max(abs(least - usual), abs(most - usual)), both.height, False)
    offset = min(max(usual, least), most)
    return ClockOffset(offset, max(offset - least, most - offset), both.height, True)
