"""The events of every GPU, one row per kernel, copy and memory set, with the call that launched it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.intervals import Intervals, union
from perfwrap.measures.account.loop_events import Integers
from perfwrap.measures.kernels.kernel_classes import classify
from perfwrap.timeline.model import Timeline

CATEGORIES = ("kernel", "copy", "memset")
STREAM = r"^(gpu/\d+) stream"
"""Pattern for the GPU in the name of a stream's track."""
LAUNCH = r"Launch(Cooperative)?Kernel|LaunchCooperative|GraphLaunch|^cuLaunchGrid|ModuleLaunchKernel"
"""Calls of CUDA's and HIP's runtime and driver that start kernels."""
NCCL = r"(?i)nccl|rccl"
"""Kernels of the collective libraries."""

RECORDED = ("kernels", "trace")
"""``what`` of the coverage rows of a process that say when its GPU was recorded."""

GPU_CLOCK = "gpu_clock"
"""``what`` of the coverage rows that say that the times of a process's GPU are wrong."""

EARLY_NS = 50_000
"""Work that starts this much before the call that launched it shows that the GPU's clock was mapped wrongly; correct
recordings have it at least 2 µs after."""
EARLY_SHARE = 0.01
"""Share of such rows from which the whole order between host and GPU is unreliable."""

EVENT_COLUMNS: dict[str, Any] = {
    "start": pl.Int64,
    "end": pl.Int64,
    "track": pl.Int32,
    "process": pl.Int32,
    "category": pl.String,
    "operation": pl.String,
    "name": pl.String,
    "class": pl.String,
    "tensor": pl.Boolean,
    "nccl": pl.Boolean,
    "link": pl.Int64,
    "value": pl.Int64,
    "launched": pl.Int64,
    "launched_end": pl.Int64,
    "thread": pl.Int32,
}


class DeviceEvents(Struct, frozen=True, dict=True):
    """The events of one GPU: ``table`` has the columns of EVENT_COLUMNS, sorted by start.

    ``launched`` to ``launched_end`` is the call that launched a row, on the track ``thread``; null if not recorded.
    ``windows`` are the recorded times, each from the start of its first row to the end of its last. ``launches`` counts
    the calls that start kernels, including those whose kernels were lost.
    """

    host: str
    device: str
    source: str
    table: pl.DataFrame
    windows: Intervals
    launches: int
    noted_clock_is_off: bool = False
    """Whether the reader of the recording noted that the GPU's clock is off (coverage of ``gpu_clock``)."""

    @cached_property
    def clock_is_off(self) -> bool:
        """Whether GPU and host times cannot be compared: too much work starts before its launch."""
        if self.noted_clock_is_off:
            return True
        early = self.table["launched"] - self.table["start"] > EARLY_NS
        return bool((early.drop_nulls().mean() or 0.0) > EARLY_SHARE)

    def intervals(self, condition: pl.Expr | None = None) -> Intervals:
        """Return when any of the rows ran, or of those that match a condition."""
        rows = self.table if condition is None else self.table.filter(condition)
        return union([(rows["start"].to_numpy(), rows["end"].to_numpy())])


def find_gpu_events(timeline: Timeline) -> tuple[DeviceEvents, ...]:
    """Return the events of each GPU by host and name; if two sources recorded it, those of the larger one."""
    streams = timeline.tracks.filter(pl.col("kind") == "stream").select(
        pl.col("id").alias("track"),
        pl.col("parent").alias("process"),
        pl.col("host").fill_null(""),
        pl.col("name").str.extract(STREAM).alias("device"),
    )
    wanted = ("start", "duration", "track", "name", "category", "operation", "link", "value", "source")
    worked = timeline.spans.select(wanted).filter(
        pl.col("category").cast(pl.String).is_in(CATEGORIES),
        pl.col("track").is_in(streams["track"].implode()),
    )
    if worked.is_empty():
        return ()
    calls = _calls(timeline)
    # One name for all, so that only one of these tables is in memory: they can be the largest of a diagnosis.
    found = worked.join(streams.drop_nulls("device"), on="track", maintain_order="left")
    del worked
    found = _with_classes(found)
    found = _with_launches(found, calls)
    chosen = found.group_by("host", "device", "source").len().sort("len", "source", descending=True)
    number = pl.col("device").str.extract(r"(\d+)$").cast(pl.Int64)
    chosen = chosen.unique(["host", "device"], keep="first", maintain_order=True).sort("host", number)
    return tuple(
        _device(timeline, found, calls, host, device, source)
        for host, device, source in chosen.select("host", "device", "source").iter_rows()
    )


def together(devices: tuple[DeviceEvents, ...]) -> DeviceEvents:
    """Return the events of several GPUs as if they were one, for figures of a whole capture."""
    table = pl.concat([device.table for device in devices]).sort("start", maintain_order=True)
    return DeviceEvents(
        host=devices[0].host,
        device="all",
        source=devices[0].source,
        table=table,
        windows=_windows(table, union([device.windows for device in devices])),
        launches=sum(device.launches for device in devices),
        noted_clock_is_off=any(device.noted_clock_is_off for device in devices),
    )


def _device(
    timeline: Timeline, events: pl.DataFrame, calls: pl.DataFrame, host: str, device: str, source: str
) -> DeviceEvents:
    """Return one GPU's events."""
    rows = events.lazy().filter(pl.col("source") == source)
    own = rows.filter(pl.col("host") == host, pl.col("device") == device)
    table = own.select(pl.col(name).cast(kind) for name, kind in EVENT_COLUMNS.items()).collect()
    others = rows.filter((pl.col("host") != host) | (pl.col("device") != device))
    elsewhere = others.select("process", "link").collect()
    recorded = timeline.coverage.filter(
        pl.col("what").is_in(RECORDED),
        pl.col("source") == source,
        pl.col("end") > pl.col("start"),
        pl.col("track").is_in(table["process"].implode()),
    )
    covered = union([(recorded["start"].to_numpy(), recorded["end"].to_numpy())])
    doubted = timeline.coverage.filter(
        pl.col("what") == GPU_CLOCK,
        pl.col("source") == source,
        pl.col("track").is_in(table["process"].implode()),
    )
    return DeviceEvents(
        host,
        device,
        source,
        table,
        _windows(table, covered),
        _launches(table, elsewhere, calls),
        not doubted.is_empty(),
    )


def _calls(timeline: Timeline) -> pl.DataFrame:
    """Return the calls on threads that have a link: one per link, from its first start."""
    threads = timeline.tracks.filter(pl.col("kind") == "thread")
    threads = threads.select(pl.col("id").alias("thread"), pl.col("parent").alias("process"))
    operations = timeline.spans["operation"].unique()
    starts_kernels = operations.filter(operations.str.contains(LAUNCH).fill_null(False))
    calls = (
        timeline.spans.lazy()
        .filter(pl.col("link").is_not_null(), pl.col("track").is_in(threads["thread"].implode()))
        .select(
            "link",
            pl.col("start").alias("launched"),
            (pl.col("start") + pl.col("duration")).alias("launched_end"),
            pl.col("track").alias("thread"),
            pl.col("operation").is_in(starts_kernels.implode()).fill_null(False).alias("is_launch"),
        )
        .collect()
    )
    if calls["link"].n_unique() < calls.height:
        calls = calls.group_by("link", maintain_order=True).agg(
            pl.col("launched").min(),
            pl.col("launched_end").max(),
            pl.col("thread").first(),
            pl.col("is_launch").any(),
        )
    return calls.join(threads, on="thread", how="left", maintain_order="left")


def _with_classes(events: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with their end, class, use of tensor cores, and whether a collective library ran them."""
    kernels = pl.col("category") == "kernel"
    return events.join(classify(events["name"]), on="name", how="left", maintain_order="left").with_columns(
        (pl.col("start") + pl.col("duration")).alias("end"),
        pl.when(kernels).then("class").alias("class"),
        pl.when(kernels).then("tensor").alias("tensor"),
        (kernels & pl.col("name").fill_null("").str.contains(NCCL)).alias("nccl"),
    )


def _with_launches(events: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the call that launched each."""
    kept = calls.select("link", "launched", "launched_end", "thread")
    return events.join(kept, on="link", how="left", maintain_order="left")


def _windows(table: pl.DataFrame, recorded: Intervals) -> Intervals:
    """Return start and end of the events in each of the recorded intervals."""
    start, end = table["start"].to_numpy(), table["end"].to_numpy()
    place = (
        np.searchsorted(recorded[0], start, side="right") - 1 if recorded[0].size else np.zeros(start.size)
    )
    place = np.maximum(place, 0)
    first: Integers = np.flatnonzero(np.append(True, place[1:] != place[:-1]))
    last = np.append(first[1:], start.size)
    ends = [int(end[begin:finish].max()) for begin, finish in zip(first, last, strict=True)]
    return union([(start[first], np.array(ends, dtype=np.int64))])


def _launches(table: pl.DataFrame, elsewhere: pl.DataFrame, calls: pl.DataFrame) -> int:
    """Return how many calls launched kernels on a GPU.

    A call whose kernel was lost counts if its process used only this GPU.
    """
    launches = calls.lazy().filter("is_launch").select("link", "process").collect()
    links = table.lazy().filter(pl.col("category") == "kernel").select("link").drop_nulls().collect()["link"]
    own = launches.filter(pl.col("link").is_in(links.implode())).height
    lone = table["process"].unique()
    lone = lone.filter(~lone.is_in(elsewhere["process"].unique().implode()))
    lost = launches.filter(pl.col("process").is_in(lone.implode()))
    linked = pl.concat([table["link"], elsewhere["link"]]).drop_nulls()
    return own + lost.filter(~pl.col("link").is_in(linked.implode())).height
