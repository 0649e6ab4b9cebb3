"""What used a GPU's memory when a snapshot of torch's allocator was taken: by line, and the unused part."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.lines import Line, line_of
from perfwrap.measures.evidence import Evidence
from perfwrap.timeline.lookup import facts_of
from perfwrap.timeline.model import Timeline

FACTS = "snapshot/"


class HeldLine(Struct, frozen=True):
    """Live blocks that one line allocated; ``where`` is None if no line was recorded.

    ``what`` is then what is known of them instead: ``backward pass``, or nothing.
    """

    where: Line | None
    bytes: int
    blocks: int
    what: str = ""


class DriverReturns(Struct, frozen=True):
    """How often torch's allocator returned memory to the driver while the history was recorded, and how much.

    ``requests`` and ``requested_bytes`` are what it requested after the first return; ``lines`` those of the program
    that were running, most memory first.
    """

    count: int
    bytes: int
    requests: int
    requested_bytes: int
    lines: tuple[HeldLine, ...]


class GpuMemory(Struct, frozen=True):
    """One device, in bytes.

    ``reserved`` is what torch got from the driver, ``allocated`` the live blocks in it, ``free`` the unused rest,
    ``largest_free`` its largest piece, ``stuck`` the part of it in segments with live blocks, which cannot be returned
    to the driver. ``peak`` is the maximum that was allocated at once while the history was recorded, None without a
    history. ``lines`` are of all devices of the same snapshot, most memory first.
    """

    host: str
    device: str
    allocated: int
    reserved: int
    free: int
    largest_free: int
    stuck: int
    peak: int | None
    lines: tuple[HeldLine, ...]
    expandable: bool
    """Whether the allocator's segments can grow and shrink."""
    peak_lines: tuple[HeldLine, ...] = ()
    """The lines that requested what was allocated at the peak; empty without a history."""
    returns: DriverReturns | None = None
    """How often memory went back to the driver; None without a history."""


def find_gpu_memory(evidence: Evidence) -> tuple[GpuMemory, ...]:
    """Return each device of each snapshot that was read, by host and device."""
    timeline = evidence.timeline
    recorded = timeline.facts.filter(pl.col("key").str.starts_with(FACTS))["track"].unique()
    tracks = timeline.tracks.filter(pl.col("id").is_in(recorded.implode())).sort("host", "id")
    return tuple(
        _device(timeline, track, host, name)
        for track, host, name in tracks.select("id", "host", "name").iter_rows()
    )


def _device(timeline: Timeline, track: int, host: str, name: str) -> GpuMemory:
    """Return one device."""
    facts = facts_of(timeline, track)
    names = ("allocated", "reserved", "free", "largest_free", "stuck")
    figures = {figure: int(facts[f"{FACTS}{figure}_bytes"]) for figure in names}
    peak = facts.get(f"{FACTS}peak_allocated_bytes")
    processes = timeline.tracks.filter(pl.col("kind") == "process", pl.col("host") == host)["id"].to_list()
    settings = " ".join(
        facts_of(timeline, process).get("env/PYTORCH_CUDA_ALLOC_CONF", "") for process in processes
    )
    return GpuMemory(
        host,
        name,
        **figures,
        peak=None if peak is None else int(peak),
        lines=_lines(timeline, "live_block", processes),
        expandable="expandable_segments:True" in settings,
        peak_lines=_lines(timeline, "peak_block", [track]),
        returns=_returns(timeline, track, facts),
    )


def _returns(timeline: Timeline, track: int, facts: dict[str, str]) -> DriverReturns | None:
    """Return how often memory went back to the driver."""
    names = ("driver_returns", "returned_bytes", "requests_after_return", "requested_again_bytes")
    if f"{FACTS}{names[0]}" not in facts:
        return None
    count, size, requests, requested = (int(facts[f"{FACTS}{name}"]) for name in names)
    lines = _lines(timeline, "segment_free", [track])
    return DriverReturns(count, size, requests, requested, lines)


def _lines(timeline: Timeline, mark: str, tracks: list[int]) -> tuple[HeldLine, ...]:
    """Return the lines of the marks with that name, most memory first."""
    rows = timeline.marks.filter(pl.col("name") == mark, pl.col("track").is_in(tracks))
    return tuple(
        HeldLine(
            line_of(row["file"], row["line"], row["function"]),
            int(row["value"]),
            int(row["detail"]),
            row["function"] or "",
        )
        for row in rows.sort("value", descending=True).iter_rows(named=True)
    )
