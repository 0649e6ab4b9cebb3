"""The activity of each GPU during each step that the program or a profiler marked."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.intervals import Intervals, covered
from perfwrap.measures.kernels.gpu_events import DeviceEvents
from perfwrap.timeline.model import Timeline

STEP_COLUMNS: dict[str, Any] = {
    "start": pl.Int64,
    "end": pl.Int64,
    "period": pl.Int64,
    "kernels": pl.Int64,
    "busy_ns": pl.Int64,
    "idle_ns": pl.Int64,
    "collective_exposed_ns": pl.Int64,
    "h2d_exposed_ns": pl.Int64,
}


class GpuSteps(Struct, frozen=True):
    """One GPU during the marked steps: ``table`` has the columns of STEP_COLUMNS, in order.

    ``start`` to ``end`` is what the program marked, on the host; ``period`` is from one start to the next, null for the
    last. The GPU's figures are for the period, and for the last step until its end.
    """

    table: pl.DataFrame

    @property
    def median_period_ns(self) -> float | None:
        """The median time from the start of a step to that of the next."""
        known = self.table["period"].drop_nulls()
        return None if known.is_empty() else float(np.median(known.to_numpy()))

    @property
    def busy_share(self) -> float | None:
        """The share of the time from the first step's start to the last one's end in which the GPU was busy."""
        if self.table.is_empty():
            return None
        whole = int(self.table["end"][-1]) - int(self.table["start"][0])
        return int(self.table["busy_ns"].sum()) / whole if whole else None


def marked_steps(timeline: Timeline, process: int) -> pl.DataFrame:
    """Return start and end of the steps that a process marks, on the thread with most marks, in order."""
    threads = timeline.tracks.filter(pl.col("kind") == "thread", pl.col("parent") == process)["id"]
    steps = timeline.spans.filter(pl.col("category") == "step", pl.col("track").is_in(threads.implode()))
    most = steps.group_by("track").len().sort("len", "track", descending=[True, False])["track"].head(1)
    own = steps.filter(pl.col("track").is_in(most.implode()))
    # A profiler and the program may mark the same steps: those of the source that is first in the table count.
    own = own.filter(pl.col("source") == pl.col("source").first())
    return own.select("start", (pl.col("start") + pl.col("duration")).alias("end"))


def find_gpu_steps(
    steps: pl.DataFrame, events: DeviceEvents, collectives: Intervals, copies: Intervals
) -> GpuSteps:
    """Return the GPU's activity in the steps, given the times of its exposed collectives and copies to the GPU."""
    if steps.is_empty():
        return GpuSteps(pl.DataFrame(schema=STEP_COLUMNS))
    start, end = steps["start"].to_numpy(), steps["end"].to_numpy()
    until = np.append(start[1:], end[-1])
    busy = covered(events.intervals(), start, until)
    begun = np.sort(events.table.filter(pl.col("category") == "kernel")["start"].to_numpy())
    table = pl.DataFrame(
        {
            "start": start,
            "end": end,
            "period": pl.Series([*np.diff(start).tolist(), None], dtype=pl.Int64),
            "kernels": np.searchsorted(begun, until) - np.searchsorted(begun, start),
            "busy_ns": busy,
            "idle_ns": until - start - busy,
            "collective_exposed_ns": covered(collectives, start, until),
            "h2d_exposed_ns": covered(copies, start, until),
        }
    )
    return GpuSteps(table.cast(STEP_COLUMNS))  # type: ignore[arg-type]
