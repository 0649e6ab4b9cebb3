"""What was sampled of GPUs, processors and memory, as panels on the shared time axis."""

from __future__ import annotations

from typing import Any

import polars as pl
from msgspec import Struct

from perfwrap.diagnosis.model import Overview
from perfwrap.reports.html.encoding import FACTOR, LEVEL, SECOND_NS, levels
from perfwrap.timeline.model import Timeline

MAX_CURVES = 8
"""Devices with a separate curve; more are drawn as one band."""

MAX_POINTS = 60_000
"""Points of all sampled curves together, in their finest levels: limited by the size of the file."""

FINEST_SAMPLES = FACTOR * LEVEL
"""Maximum points of one curve."""

GIB, MEGA, PERCENT = 2.0**30, 1e6, 0.01


class Panel(Struct, frozen=True):
    """Series that are drawn together: of each metric its name in the legend; values are divided by ``scale``."""

    id: str
    title: str
    unit: str
    scale: float
    metrics: dict[str, str]


GPU_PANELS = (
    Panel("gpu-use", "GPU busy (duty cycle)", "%", PERCENT, {"utilization_share": ""}),
    Panel(
        "gpu-units",
        "GPU units at work",
        "%",
        PERCENT,
        {"sm_activity_share": "SMs", "tensor_activity_share": "tensor", "dram_activity_share": "DRAM"},
    ),
    Panel("gpu-memory", "GPU memory in use", "GiB", GIB, {"memory_used_bytes": ""}),
    Panel(
        "gpu-allocator",
        "GPU memory of torch's allocator",
        "GiB",
        GIB,
        {"allocated_bytes": "allocated", "reserved_bytes": "reserved"},
    ),
    Panel("gpu-power", "GPU power", "W", 1.0, {"power_watts": ""}),
    Panel("gpu-clock", "GPU clock", "MHz", MEGA, {"sm_clock_hertz": ""}),
)
LOWERED = "throttled_share"
"""1 while the GPU is throttled."""

HOST_PANELS = (
    Panel(
        "cpu", "Processors busy", "cores", 1.0, {"cpu_cores_busy": "whole machine", "cpu_cores": "processes"}
    ),
    Panel("memory", "Memory", "GiB", GIB, {"memory_used_bytes": "control group", "rss_bytes": "processes"}),
)
ROLES = {"main": "training", "worker": "workers", "agent": "launcher", "helper": "helpers"}
"""Processes that are drawn together, and their labels."""


def machine_panels(timeline: Timeline, overview: Overview, origin: int) -> list[dict[str, Any]]:
    """Return the panels of everything that was sampled, without empty panels."""
    counters = _counters(timeline)
    drawn = [metric for panel in (*GPU_PANELS, *HOST_PANELS) for metric in panel.metrics]
    curves = counters.filter(pl.col("name").is_in(drawn)).height
    finest = max(LEVEL, min(FINEST_SAMPLES, MAX_POINTS // max(1, curves)))
    panels = [_gpu_panel(timeline, counters, panel, origin, finest) for panel in GPU_PANELS]
    host = counters.filter(pl.col("host").eq_missing(pl.lit(_host(timeline, overview))))
    panels += [_host_panel(timeline, host, panel, origin, finest) for panel in HOST_PANELS]
    return [panel for panel in panels if panel["traces"]]


def _counters(timeline: Timeline) -> pl.DataFrame:
    """Return each series with what it is about."""
    owners = timeline.tracks.select(
        pl.col("id").alias("parent"),
        pl.col("kind").alias("owner_kind"),
        pl.col("name").alias("owner"),
        pl.col("role").alias("owner_role"),
    )
    counters = timeline.tracks.filter(pl.col("kind") == "counter").select(
        pl.col("id").alias("track"), "name", "parent", "host"
    )
    return counters.join(owners, on="parent").sort("track")


def _host(timeline: Timeline, overview: Overview) -> str | None:
    """Return the host of the main training process, else the first one."""
    if overview.main is not None:
        return overview.trainers[overview.main].trainer.host
    return next(iter(timeline.tracks.filter(pl.col("kind") == "host")["name"]), None)


def _gpu_panel(
    timeline: Timeline, counters: pl.DataFrame, panel: Panel, origin: int, finest: int
) -> dict[str, Any]:
    """Return one panel about GPUs: a curve for each, or one band for many."""
    traces = []
    gpus = counters.filter(pl.col("owner_kind").is_in(["gpu", "mig"]))
    hosts = gpus["host"].n_unique()
    for metric, label in panel.metrics.items():
        rows = gpus.filter(pl.col("name") == metric)
        if rows.height > MAX_CURVES:
            points = _points(timeline, rows["track"].to_list(), origin, panel.scale)
            name = " ".join(word for word in (f"all {rows.height} GPUs", label) if word)
            traces.append({"name": name, "band": True, "levels": levels(points, LEVEL // 2, LEVEL // 2)})
            continue
        for track, host, owner in rows.select("track", "host", "owner").iter_rows():
            place = f"{host} {owner}" if hosts > 1 else owner
            name = " ".join(word for word in (place, label) if word)
            points = _points(timeline, [track], origin, panel.scale)
            traces.append({"name": name, "levels": levels(points, finest, band=False)})
    if panel.id == "gpu-clock" and traces:
        traces += _lowered(timeline, gpus, origin)
    return _with_note(panel, traces)


def _lowered(timeline: Timeline, gpus: pl.DataFrame, origin: int) -> list[dict[str, Any]]:
    """Return when each GPU was throttled, with its clock then."""
    found = []
    for track, parent, owner in (
        gpus.filter(pl.col("name") == LOWERED).select("track", "parent", "owner").iter_rows()
    ):
        moments = timeline.samples.filter(pl.col("track") == track, pl.col("value") > 0).select("time")
        clock = gpus.filter(pl.col("name") == "sm_clock_hertz", pl.col("parent") == parent)["track"].to_list()
        clocks = timeline.samples.filter(pl.col("track").is_in(clock)).select("time", "value")
        if moments.is_empty() or clocks.is_empty():
            continue
        rows = moments.join_asof(clocks, on="time").drop_nulls()
        points = _scaled(rows, origin, MEGA)
        found.append({"name": f"{owner} throttled", "markers": True, "levels": levels(points, LEVEL)})
    return found


def _host_panel(
    timeline: Timeline, counters: pl.DataFrame, panel: Panel, origin: int, finest: int
) -> dict[str, Any]:
    """Return one panel about a host: a curve for the whole, and one for each kind of process, summed."""
    traces = []
    for metric, label in panel.metrics.items():
        rows = counters.filter(pl.col("name") == metric)
        whole = rows.filter(pl.col("owner_kind").is_in(["host", "cgroup"]))["track"].to_list()
        if whole:
            points = _points(timeline, whole[:1], origin, panel.scale)
            traces.append({"name": label, "levels": levels(points, finest, band=False)})
        for role, called in ROLES.items():
            own = rows.filter(pl.col("owner_kind") == "process", pl.col("owner_role") == role)
            if own.height:
                points = _summed(timeline, own["track"].to_list(), origin, panel.scale)
                name = called if own.height == 1 else f"{called} ({own.height})"
                traces.append({"name": name, "levels": levels(points, finest, band=False)})
    return _with_note(panel, traces)


def _points(timeline: Timeline, tracks: list[int], origin: int, size: float) -> pl.DataFrame:
    """Return the samples of some series as points."""
    return _scaled(timeline.samples.filter(pl.col("track").is_in(tracks)), origin, size)


def _summed(timeline: Timeline, tracks: list[int], origin: int, size: float) -> pl.DataFrame:
    """Return the sum of several series, from second to second, each with its mean in that second."""
    if len(tracks) == 1:
        return _points(timeline, tracks, origin, size)
    rows = timeline.samples.filter(pl.col("track").is_in(tracks))
    second = pl.col("time") // int(SECOND_NS)
    means = rows.group_by(second.alias("second"), "track").agg(pl.col("value").mean(), pl.col("time").min())
    sums = means.group_by("second").agg(pl.col("time").min(), pl.col("value").sum()).sort("time")
    return _scaled(sums, origin, size)


def _scaled(rows: pl.DataFrame, origin: int, size: float) -> pl.DataFrame:
    """Return times and values as x in seconds and y in the panel's unit."""
    return rows.filter(pl.col("value").is_finite()).select(
        ((pl.col("time") - origin) / SECOND_NS).alias("x"), (pl.col("value") / size).alias("y")
    )


def _with_note(panel: Panel, traces: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": panel.id, "title": panel.title, "unit": panel.unit, "traces": traces}
