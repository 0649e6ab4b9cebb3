"""Small figures of the steady loop that many rules need."""

from __future__ import annotations

import polars as pl

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.lines import Line, line_of
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu.gpu_state import find_gpus
from perfwrap.measures.loop.syncs import find_syncs
from perfwrap.measures.models import find_devices
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import mean_over, samples_of

COMPUTE_PARTS = ("forward", "backward", "recompute", "optimizer")
"""Parts of the account in which the model itself works."""

HOSTS = frozenset(("cpu", "meta"))
"""Devices whose work is done when the call returns, or that do none."""


def mean_step_ns(evidence: Evidence, trainer: Trainer) -> float:
    """Return the mean time of a steady step, including the time between steps; 0 without steps."""
    steady = evidence.get(find_steps, trainer).steady
    return evidence.get(find_account, trainer).total_ns / steady if steady else 0.0


def trains_on_gpu(evidence: Evidence, trainer: Trainer) -> bool:
    """Return whether the trainer's model, or a value that it read, was on a GPU: any device except the host's."""
    devices = {device.partition(":")[0] for device in evidence.get(find_devices, trainer)}
    return bool(devices - HOSTS) or any(line.on_gpu for line in evidence.get(find_syncs, trainer))


def gpu_utilization(evidence: Evidence) -> float | None:
    """Return the mean utilization of the GPUs that were in use; None if they were not sampled.

    If the GPUs of the run's own processes are known, other GPUs do not count.
    """
    sampled = [gpu for gpu in evidence.get(find_gpus) if gpu.utilization is not None]
    own = [gpu for gpu in sampled if gpu.of_run] or sampled
    known = [gpu.utilization for gpu in own if gpu.utilization is not None]
    used = [value for value in known if value > 0.0]
    return sum(used) / len(used) if used else (0.0 if known else None)


def busiest_line(
    account: Account, part: str, name: str | None = None, least_share: float = 0.0
) -> Line | None:
    """Return the line on which a part of the account spent most of its time, None if no line is known.

    ``name`` restricts it to events of that name; ``least_share`` is the minimum share of the time for the line.
    """
    known = account.segments.filter(pl.col("part") == part, pl.col("file").is_not_null())
    if name is not None:
        known = known.filter(pl.col("name") == name)
    if known.is_empty():
        return None
    length = (pl.col("end") - pl.col("start")).sum().alias("ns")
    lines = known.group_by("file", "line").agg(pl.col("function").first(), length)
    row = lines.sort("ns", "file", "line", descending=True).row(0, named=True)
    if row["ns"] < least_share * int(lines["ns"].sum()):
        return None
    return line_of(row["file"], row["line"], row["function"])


def mean_in_loop(evidence: Evidence, trainer: Trainer, entity: str, metric: str) -> float | None:
    """Return the mean of a series of the trainer's host over its steady loop; None if not sampled there."""
    account = evidence.get(find_account, trainer)
    samples = samples_of(evidence.timeline, entity, metric, trainer.host)
    inside = samples.filter(pl.col("time").is_between(account.start, account.end))
    return mean_over(inside, account.start, account.end)
