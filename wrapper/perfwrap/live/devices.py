"""Figures of GPUs and processes in the last seconds, from the monitors' samples."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from msgspec import Struct

from perfwrap.measures.gpu.gpu_state import Gpu, gpus_between
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import facts_of
from perfwrap.timeline.model import Timeline

RECENT_NS = 5_000_000_000
"""``now`` is the mean of this period, because a single sample of 0.1 s is too noisy."""
GONE_NS = 3_000_000_000
"""A process without a value for this long, while others have values, has ended."""
WORDS = 2
"""Words of a command line that identify a process: the program and its first argument."""


class GpuNow(Struct, frozen=True):
    """One GPU in the last seconds."""

    figures: Gpu
    temperature_celsius: float | None


class ProcessNow(Struct, frozen=True):
    """One running process; figures are None if they were not sampled."""

    pid: int
    who: str
    trains: bool
    cpu_cores: float | None
    rss_bytes: float | None


def gpus_now(timeline: Timeline) -> tuple[GpuNow, ...]:
    """Return the GPUs with their figures of the last seconds."""
    end = _last(timeline) + 1
    recent = _recent(timeline, "temperature_celsius", end)
    return tuple(GpuNow(gpu, recent.get(gpu.track)) for gpu in gpus_between(timeline, end - RECENT_NS, end))


def processes_now(timeline: Timeline, trainers: Sequence[Trainer]) -> tuple[ProcessNow, ...]:
    """Return the running processes: trainers first, then other recorded processes, then by CPU time."""
    end = _last(timeline) + 1
    cores = _recent(timeline, "cpu_cores", end)
    memory = _recent(timeline, "rss_bytes", end)
    names = {trainer.process: trainer.name for trainer in trainers}
    living = timeline.tracks.filter(
        pl.col("kind") == "process", pl.col("role") != "monitor", _is_living(timeline, end)
    )
    found = [
        ProcessNow(
            pid,
            names.get(track) or _who(timeline, track, role),
            track in names,
            cores.get(track),
            memory.get(track),
        )
        for track, pid, role in living.select("id", "pid", "role").iter_rows()
        if pid
    ]
    return tuple(
        sorted(
            found, key=lambda one: (not one.trains, one.cpu_cores is None, -(one.cpu_cores or 0.0), one.pid)
        )
    )


def _who(timeline: Timeline, track: int, role: str) -> str:
    """Return the label of a process: its role, or else the beginning of its command."""
    facts = facts_of(timeline, track)
    if role == "worker":
        return f"worker {facts['worker_id']}" if "worker_id" in facts else "worker"
    words = facts.get("cmdline", "").split() or facts.get("argv", "").split("\x1f")
    command = " ".join(word.rpartition("/")[2] for word in words[:WORDS])
    return command or role


def _last(timeline: Timeline) -> int:
    """Return the time of the last sample."""
    return 0 if timeline.samples.is_empty() else int(timeline.samples["time"][-1])


def _recent(timeline: Timeline, metric: str, end: int) -> dict[int, float]:
    """Return the mean of a series in the last seconds, for each track that has it."""
    counters = timeline.tracks.filter(pl.col("kind") == "counter", pl.col("name") == metric)
    means = (
        timeline.samples.filter(pl.col("time") >= end - RECENT_NS)
        .join(counters.select(pl.col("id").alias("track"), "parent"), on="track")
        .group_by("parent")
        .agg(pl.col("value").mean())
    )
    return dict(means.iter_rows())


def _is_living(timeline: Timeline, end: int) -> pl.Expr:
    """Return the condition on process tracks for running ones: sampled recently, or without a recorded end."""
    counters = timeline.tracks.filter(pl.col("kind") == "counter", pl.col("name") == "cpu_cores")
    if counters.is_empty():
        return pl.lit(True)
    fresh = timeline.samples.filter(pl.col("time") >= end - GONE_NS)["track"].unique()
    owners = counters.filter(pl.col("id").is_in(fresh.to_list()))["parent"].to_list()
    return pl.col("id").is_in(owners)
