"""Which of the GPUs that monitors sampled a trainer is at work on."""

from __future__ import annotations

import polars as pl

from perfwrap.measures.gpu import Gpu
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import facts_of
from perfwrap.timeline.model import Timeline


def own_gpus(timeline: Timeline, trainer: Trainer, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Return the GPUs of the trainer's host on which its process was seen, else those of this run, else those at work.

    Inside a container NVML tells no process of the run; a GPU that did nothing at all is then nobody's.
    """
    hosts = dict(timeline.tracks.select("id", "host").iter_rows())
    here = [gpu for gpu in gpus if hosts.get(gpu.track) == trainer.host]
    seen = f"process/{trainer.pid}/owner"
    mine = [gpu for gpu in here if seen in facts_of(timeline, gpu.track)]
    of_run = [gpu for gpu in here if gpu.of_run]
    return tuple(mine or of_run or [gpu for gpu in here if gpu.utilization])


def gpu_samples(timeline: Timeline, gpu: Gpu, metric: str, start: int, end: int) -> pl.DataFrame:
    """Return time and value of one series of a GPU inside of [start, end]."""
    counters = timeline.tracks.filter(
        pl.col("kind") == "counter", pl.col("name") == metric, pl.col("parent") == gpu.track
    )
    rows = timeline.samples.filter(
        pl.col("track").is_in(counters["id"].to_list()), pl.col("time").is_between(start, end)
    )
    return rows.select("time", "value").sort("time")
