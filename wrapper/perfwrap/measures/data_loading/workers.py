"""The DataLoader workers of a training process, and their CPU time."""

from __future__ import annotations

import polars as pl

from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import once, track_samples
from perfwrap.timeline.model import Timeline

NS_PER_S = 1_000_000_000


def worker_processes(timeline: Timeline, trainer: Trainer) -> list[int]:
    """Return the tracks of the DataLoader workers that the trainer's process started, directly or by a fork server."""
    return once(timeline, ("worker_processes", trainer), lambda whole: _find_workers(whole, trainer))


def _find_workers(timeline: Timeline, trainer: Trainer) -> list[int]:
    """Return the same, from the parents of all processes."""
    processes = timeline.tracks.filter(pl.col("kind") == "process", pl.col("host") == trainer.host)
    known = timeline.facts.filter(pl.col("key") == "ppid", pl.col("value").str.contains(r"^\d+$"))
    parents = dict(
        processes.join(known, left_on="id", right_on="track")
        .select("pid", pl.col("value").cast(pl.Int64))
        .iter_rows()
    )
    workers = processes.filter(pl.col("role") == "worker").select("id", "pid").iter_rows()
    return [track for track, pid in workers if trainer.pid in _ancestors(pid, parents)]


def _ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    """Return a process's parent and grandparent: newer Python versions have the fork server in between."""
    parent = parents.get(pid, 0)
    return [parent, parents.get(parent, 0)]


def worker_cpu_ns(timeline: Timeline, trainer: Trainer, start: int, end: int) -> float | None:
    """Return the CPU time of all workers of a trainer in [start, end); None if not sampled."""
    shares = [
        _busy(track_samples(timeline, track, "cpu_cores"), start, end)
        for track in worker_processes(timeline, trainer)
    ]
    known = [share for share in shares if share is not None]
    return sum(known) if known else None


def _busy(samples: pl.DataFrame, start: int, end: int) -> float | None:
    """Return cores x time: each sample covers the time since the previous one."""
    if samples.height < 2:
        return None
    since = pl.col("time").shift(1).clip(start, end)
    spans = samples.select(((pl.col("time").clip(start, end) - since) * pl.col("value")).sum())
    return float(spans.item())
