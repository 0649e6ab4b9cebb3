"""Small figures of the steady loop that many rules need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from perfwrap.measures.account import Account
from perfwrap.measures.lines import Line, line_of
from perfwrap.measures.trainers import Trainer

if TYPE_CHECKING:
    from perfwrap.measures.evidence import Evidence

COMPUTE_PARTS = ("forward", "backward", "optimizer")
"""Parts of the account in which the model itself is at work."""


def mean_step_ns(evidence: Evidence, trainer: Trainer) -> float:
    """Return the mean time of a steady step, whatever stands between the steps included; 0 without steps."""
    steady = evidence.steps(trainer).steady
    return evidence.account(trainer).total_ns / steady if steady else 0.0


def trains_on_gpu(evidence: Evidence, trainer: Trainer) -> bool:
    """Say whether the trainer's model, or a value that it read, was on a GPU."""
    facts = evidence.facts(trainer.process)
    devices = [value for key, value in facts.items() if key.startswith("model/") and key.endswith("/device")]
    return any(device.startswith("cuda") for device in devices) or any(
        line.on_gpu for line in evidence.syncs(trainer)
    )


def gpu_utilization(evidence: Evidence) -> float | None:
    """Return the mean utilisation of the GPUs that were in use at all; None when nothing sampled them.

    Where it is known which GPUs the run's own processes were on, others' do not count.
    """
    sampled = [gpu for gpu in evidence.gpus if gpu.utilization is not None]
    own = [gpu for gpu in sampled if gpu.of_run] or sampled
    known = [gpu.utilization for gpu in own if gpu.utilization is not None]
    used = [value for value in known if value > 0.0]
    return sum(used) / len(used) if used else (0.0 if known else None)


def busiest_line(
    account: Account, part: str, name: str | None = None, least_share: float = 0.0
) -> Line | None:
    """Return the line on which a part of the account spent most of its time, None when no line is known.

    ``name`` asks for what is called that only; ``least_share`` for a line with that share of the time or more.
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
