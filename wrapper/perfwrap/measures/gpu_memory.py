"""What held a GPU's memory when a snapshot of torch's allocator was taken: by line, and what of it was in no use."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from perfwrap.measures.lines import Line, line_of
from perfwrap.timeline.lookup import facts_of
from perfwrap.timeline.model import Timeline

FACTS = "snapshot/"


@dataclass(frozen=True)
class HeldLine:
    """Live blocks that one line asked for; ``where`` is None for those of which no line was recorded.

    ``what`` is then what is known of them instead: ``backward pass``, or nothing.
    """

    where: Line | None
    bytes: int
    blocks: int
    what: str = ""


@dataclass(frozen=True)
class GpuMemory:
    """One device, in bytes.

    ``reserved`` is what torch took from the driver, ``allocated`` what live blocks take of it, ``free`` what is in no
    use, ``largest_free`` the largest piece of that, ``stuck`` what of it lies in segments with live blocks, so that it
    cannot be given back. ``peak`` is the most that was allocated at once while the history was recorded, None without
    one. ``lines`` are of all devices of the same snapshot, the most memory first.
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
    """Whether the allocator's segments could grow and shrink."""


def find_gpu_memory(timeline: Timeline) -> tuple[GpuMemory, ...]:
    """Return each device of each snapshot that was read, by host and device."""
    told = timeline.facts.filter(pl.col("key").str.starts_with(FACTS))["track"].unique()
    tracks = timeline.tracks.filter(pl.col("id").is_in(told.implode())).sort("host", "id")
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
        lines=_lines(timeline, processes),
        expandable="expandable_segments:True" in settings,
    )


def _lines(timeline: Timeline, processes: list[int]) -> tuple[HeldLine, ...]:
    """Return the lines that asked for the live blocks of a snapshot."""
    rows = timeline.marks.filter(pl.col("name") == "live_block", pl.col("track").is_in(processes))
    return tuple(
        HeldLine(
            line_of(row["file"], row["line"], row["function"]),
            int(row["value"]),
            int(row["detail"]),
            row["function"] or "",
        )
        for row in rows.sort("value", descending=True).iter_rows(named=True)
    )
