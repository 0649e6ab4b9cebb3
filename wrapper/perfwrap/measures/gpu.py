"""What the monitor's samples say about each GPU during the steady loop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import polars as pl

from perfwrap.timeline.lookup import facts_of, mean_over, track_samples
from perfwrap.timeline.model import Timeline

REASON = "throttle/"
"""Prefix of the series of one reason for lowered clocks."""

OFTEN = 0.05
"""A reason is named when it held for this share of the time."""


@dataclass(frozen=True)
class Gpu:
    """One GPU; figures are means over the steady loop, None where not sampled.

    Utilisation is a duty cycle (some kernel ran), never a measure of how well the GPU was used.
    """

    track: int
    name: str
    utilization: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    power_watts: float | None
    throttled_share: float | None
    throttle_reasons: tuple[str, ...]


def find_gpus(timeline: Timeline, start: int, end: int) -> tuple[Gpu, ...]:
    """Return the GPUs that a monitor sampled, with means over [start, end)."""
    tracks = timeline.tracks
    counted = tracks.filter(pl.col("kind") == "counter")["parent"].unique().to_list()
    gpus = tracks.filter(pl.col("kind") == "gpu", pl.col("id").is_in(counted)).sort("host", "name")
    return tuple(
        _gpu(timeline, track, name, start, end) for track, name in gpus.select("id", "name").iter_rows()
    )


def _gpu(timeline: Timeline, track: int, entity: str, start: int, end: int) -> Gpu:
    """Return the figures of one GPU."""
    facts = facts_of(timeline, track)
    mean = partial(_mean, timeline, track, start, end)
    names = timeline.tracks.filter(pl.col("kind") == "counter", pl.col("parent") == track)["name"].to_list()
    reasons = sorted(name for name in names if name.startswith(REASON) and (mean(name) or 0.0) >= OFTEN)
    total = facts.get("memory_total_bytes", "")
    return Gpu(
        track=track,
        name=f"{facts.get('name', 'GPU')} ({entity})",
        utilization=mean("utilization_share"),
        memory_used_bytes=mean("memory_used_bytes"),
        memory_total_bytes=float(total) if total.isdigit() else None,
        power_watts=mean("power_watts"),
        throttled_share=mean("throttled_share"),
        throttle_reasons=tuple(name.removeprefix(REASON) for name in reasons),
    )


def _mean(timeline: Timeline, track: int, start: int, end: int, metric: str) -> float | None:
    """Return the mean of a series of the GPU."""
    return mean_over(track_samples(timeline, track, metric), start, end)
