"""The GPUs among those that monitors sampled on which a training thread works."""

from __future__ import annotations

import polars as pl

from perfwrap.measures.account.account import find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu.gpu_state import Gpu, find_gpus
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import facts_of


def find_own_gpus(evidence: Evidence, trainer: Trainer) -> tuple[Gpu, ...]:
    """Return the GPUs on the trainer's host with its process, else those of this run, else the active ones.

    Inside a container NVML shows no process of the run; a GPU without any activity then has no owner.
    """
    hosts = dict(evidence.timeline.tracks.select("id", "host").iter_rows())
    here = [gpu for gpu in evidence.get(find_gpus) if hosts.get(gpu.track) == trainer.host]
    seen = f"process/{trainer.pid}/owner"
    mine = [gpu for gpu in here if seen in facts_of(evidence.timeline, gpu.track)]
    of_run = [gpu for gpu in here if gpu.of_run]
    return tuple(mine or of_run or [gpu for gpu in here if gpu.utilization])


def gpu_samples(evidence: Evidence, trainer: Trainer, gpu: Gpu, metric: str) -> pl.DataFrame:
    """Return time and value of one series of a GPU during the trainer's steady loop; empty if not sampled."""
    timeline, account = evidence.timeline, evidence.get(find_account, trainer)
    counters = timeline.tracks.filter(
        pl.col("kind") == "counter", pl.col("name") == metric, pl.col("parent") == gpu.track
    )
    rows = timeline.samples.filter(
        pl.col("track").is_in(counters["id"].to_list()), pl.col("time").is_between(account.start, account.end)
    )
    return rows.select("time", "value").sort("time")
