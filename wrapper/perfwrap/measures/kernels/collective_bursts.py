"""Many small collectives in quick succession on a GPU, and the time that they take without any computation."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.intervals import Intervals, contain, covered, length, union, without
from perfwrap.measures.account.loop_events import Integers
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import KERNEL, GpuActivity

NEXT_NS = 1_000_000
"""Collectives that start within this time after the end of the one before belong together: a host that starts one per
tensor needs 50 to 300 µs for each."""
MIN_COLLECTIVES = 20
"""Fewer in a row are usual: DistributedDataParallel exchanges a ResNet-50 in 4 to 8 buckets."""
SHORT_NS = 200_000
"""The median collective of such a row takes less: then its latency and its launch are the cost, not the bytes."""


MAX_COMPUTING = 0.5
"""Share of such a row in which other kernels run, up to which it is one: otherwise collectives of a few layers are
between computations, and none of them could be left out."""


class CollectiveBursts(Struct, frozen=True):
    """The rows of small collectives: ``count`` of them with a median of ``median_ns``.

    ``alone_ns`` is how long they ran without any other kernel, ``idle_ns`` how long the GPU was idle directly before or
    after one of them, ``idle`` these times.
    """

    count: int
    rows: int
    median_ns: float
    alone_ns: int
    idle_ns: int
    idle: Intervals


def find_collective_bursts(evidence: Evidence, gpu: GpuActivity) -> CollectiveBursts | None:
    """Return the rows of small collectives of a GPU; None without any."""
    del evidence
    own = gpu.events.table.filter(pl.col("nccl")).sort("start")
    if own.height < MIN_COLLECTIVES:
        return None
    start, end = own["start"].to_numpy(), own["end"].to_numpy()
    reached = np.maximum.accumulate(end)
    row = np.append(0, np.cumsum(start[1:] - reached[:-1] > NEXT_NS))
    rows = (
        own.select("start", "end", (pl.col("end") - pl.col("start")).alias("ns"))
        .with_columns(pl.Series("row", row))
        .group_by("row", maintain_order=True)
        .agg(pl.len().alias("count"), pl.col("start").min(), pl.col("end").max(), pl.col("ns").median())
        .filter(pl.col("count") >= MIN_COLLECTIVES, pl.col("ns") <= SHORT_NS)
    )
    others = gpu.events.intervals(KERNEL & ~pl.col("nccl"))
    computed = covered(others, rows["start"].to_numpy(), rows["end"].to_numpy())
    rows = rows.filter(pl.Series(computed) <= MAX_COMPUTING * (pl.col("end") - pl.col("start")))
    if rows.is_empty():
        return None
    bursts = (rows["start"].to_numpy(), rows["end"].to_numpy())
    inside = contain(bursts, start)
    collectives = union([(start[inside], end[inside])])
    idle = _beside(without(bursts, gpu.events.intervals()), start[inside], end[inside])
    return CollectiveBursts(
        count=int(inside.sum()),
        rows=rows.height,
        median_ns=float(np.median((end - start)[inside])),
        alone_ns=length(without(collectives, others)),
        idle_ns=length(idle),
        idle=idle,
    )


def idle_beside(gpu: GpuActivity, bursts: CollectiveBursts, blame: str) -> int:
    """Return how much of the idle time directly before and after these collectives has a cause, in nanoseconds."""
    pieces = gpu.idle.filter(pl.col("blame") == blame)
    return int(covered(bursts.idle, pieces["start"].to_numpy(), pieces["end"].to_numpy()).sum())


def _beside(gaps: Intervals, start: Integers, end: Integers) -> Intervals:
    """Return the gaps that begin with the end of a collective or end with the start of one."""
    chosen = np.isin(gaps[0], end) | np.isin(gaps[1], start)
    return gaps[0][chosen], gaps[1][chosen]
