"""The DataLoader workers of a trainer, and the processor time that they took."""

from __future__ import annotations

import polars as pl

from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import track_samples
from perfwrap.timeline.model import Timeline

NS_PER_S = 1_000_000_000


def worker_processes(timeline: Timeline, trainer: Trainer) -> list[int]:
    """Return the tracks of the DataLoader workers that the trainer's process started."""
    tracks = timeline.tracks.filter(
        pl.col("kind") == "process", pl.col("role") == "worker", pl.col("host") == trainer.host
    )
    parents = timeline.facts.filter(pl.col("key") == "ppid", pl.col("value") == str(trainer.pid))
    return sorted(set(tracks["id"].to_list()) & set(parents["track"].to_list()))


def worker_cpu_ns(timeline: Timeline, trainer: Trainer, start: int, end: int) -> float | None:
    """Return the processor time of all workers of a trainer in [start, end); None when nothing sampled it."""
    shares = [
        _busy(track_samples(timeline, track, "cpu_cores"), start, end)
        for track in worker_processes(timeline, trainer)
    ]
    known = [share for share in shares if share is not None]
    return sum(known) if known else None


def _busy(samples: pl.DataFrame, start: int, end: int) -> float | None:
    """Return cores x time: each sample stands for the time since the one before it."""
    if samples.height < 2:
        return None
    since = pl.col("time").shift(1).clip(start, end)
    spans = samples.select(((pl.col("time").clip(start, end) - since) * pl.col("value")).sum())
    return float(spans.item())
