"""How the host launches kernels: the cost of a launch, and how far the host is ahead of the GPU."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.intervals import overlap
from perfwrap.measures.kernels.gpu_events import DeviceEvents


class Launches(Struct, frozen=True):
    """Figures of the kernels with a recorded launch.

    They are None without such kernels; those that compare host and GPU are None if their clocks do not match.
    ``call_ns`` is the median time of the launching call on the host. ``run_ahead_ns`` is the median time from the start
    of a launch to the start of its kernel: the host's lead if the GPU is behind. ``delay_ns`` is the same only for
    kernels whose stream was idle when they were launched: the latency of a launch. ``kernel_ns`` is the median kernel;
    ``short_share`` is the share of kernels that are shorter than the call that launched them.
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
        events.table.lazy()
        .select("start", "end", "launched", "launched_end", "link", "category", before.alias("before"))
        .filter(pl.col("category") == "kernel")
        .drop("category")
        .drop_nulls("launched")
        .collect()
    )
    if kernels.is_empty():
        return Launches(events.launches)
    duration = pl.col("end") - pl.col("start")
    call = pl.col("launched_end") - pl.col("launched")
    # Many kernels of a graph share one launch: only the first has to wait for it.
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
    """Return how long at least two streams of a GPU worked at the same time."""
    starts, ends = [], []
    for (track,) in events.table.select("track").unique(maintain_order=True).iter_rows():
        start, end = events.intervals(pl.col("track") == track)
        starts.append(start)
        ends.append(end)
    return overlap(np.concatenate(starts), np.concatenate(ends)) if starts else 0
