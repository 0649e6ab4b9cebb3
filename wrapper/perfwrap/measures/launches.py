"""How the host hands kernels to the GPU: what a launch costs, and how far ahead of the GPU the host is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from perfwrap.measures.gpu_events import DeviceEvents
from perfwrap.measures.intervals import overlap


@dataclass(frozen=True)
class Launches:
    """Figures of the kernels whose launch was recorded; None where there are none,
    and for what rests on the order of host and GPU where their clocks do not fit together.

    ``call_ns`` is the median time that the launching call takes on the host. ``run_ahead_ns`` is the median time from
    the beginning of a launch to the beginning of its kernel: the host's lead where the GPU is behind. ``delay_ns`` is
    the same of those kernels only whose stream had nothing to do when they were launched: what a launch costs until
    the GPU begins. ``kernel_ns`` is the median kernel; ``short_share`` is the share of kernels that are shorter than
    the call that launched them.
    """

    count: int
    call_ns: float | None = None
    run_ahead_ns: float | None = None
    delay_ns: float | None = None
    kernel_ns: float | None = None
    short_share: float | None = None


def find_launches(events: DeviceEvents) -> Launches:
    """Return the figures of one GPU."""
    before = pl.col("end").cum_max().shift(1).over("track")
    kernels = (
        events.table.with_columns(before.alias("before"))
        .filter(pl.col("category") == "kernel")
        .drop_nulls("launched")
    )
    if kernels.is_empty():
        return Launches(events.launches)
    duration = pl.col("end") - pl.col("start")
    call = pl.col("launched_end") - pl.col("launched")
    # Many kernels of a graph share one launch: only its first has to wait for it.
    ahead = (pl.col("start") - pl.col("launched")).clip(0)
    figures = kernels.select(
        call.filter(pl.col("link").is_first_distinct()).median().alias("call"),
        ahead.median().alias("ahead"),
        ahead.filter(
            pl.col("link").is_first_distinct(), (pl.col("before") <= pl.col("launched")).fill_null(True)
        )
        .median()
        .alias("delay"),
        duration.median().alias("kernel"),
        (duration < call).filter(pl.col("link").is_unique()).mean().alias("short"),
    ).row(0)
    call_ns, ahead_ns, delay_ns, kernel_ns, short = figures
    if events.clock_is_off:
        ahead_ns = delay_ns = None
    return Launches(events.launches, call_ns, ahead_ns, delay_ns, kernel_ns, short)


def streams_overlap_ns(events: DeviceEvents) -> int:
    """Return for how long at least two streams of a GPU were at work at once."""
    starts, ends = [], []
    for (track,) in events.table.select("track").unique(maintain_order=True).iter_rows():
        start, end = events.intervals(pl.col("track") == track)
        starts.append(start)
        ends.append(end)
    return overlap(np.concatenate(starts), np.concatenate(ends)) if starts else 0
