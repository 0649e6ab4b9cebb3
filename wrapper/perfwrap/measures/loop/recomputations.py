"""The second forward passes of activation checkpointing in the steady loop, and the memory that is left."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line, line_of
from perfwrap.measures.account.loop_figures import trains_on_gpu
from perfwrap.measures.account.loop_spans import loop_spans
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.health.memory import find_allocator, free_memory
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import track_samples


class Recomputation(Struct, frozen=True):
    """The checkpoints that one line calls."""

    where: Line | None
    share: float
    """Share of the account in which their forward passes ran again; on a GPU the host's time."""
    per_step: float
    """How many of them are computed again in a step with detail that has any."""


class MemoryLeft(Struct, frozen=True):
    """Memory of the device that trains, in bytes: ``used`` at most at once, ``left`` besides."""

    used: float
    left: float


LENGTH = pl.col("end") - pl.col("start")


def find_recomputations(evidence: Evidence, trainer: Trainer) -> tuple[Recomputation, ...]:
    """Return the lines whose checkpoints were computed again in the steady loop, most time first."""
    account = evidence.get(find_account, trainer)
    key = ("file", "line")
    spans = loop_spans(evidence.timeline, trainer, account).filter(pl.col("operation") == "recompute")
    counts = {
        row[:2]: row[2] / max(1, row[3])
        for row in spans.group_by(key).agg(pl.len(), pl.col("at_step").n_unique()).iter_rows()
    }
    lines = (
        account.segments.filter(pl.col("part") == "recompute")
        .group_by(key)
        .agg(pl.col("function").first(), LENGTH.sum().alias("ns"))
        .sort("ns", *key, descending=True)
    )
    return tuple(
        Recomputation(
            line_of(row["file"], row["line"], row["function"]),
            row["ns"] / account.total_ns,
            counts.get((row["file"], row["line"]), 0.0),
        )
        for row in lines.iter_rows(named=True)
    )


def find_memory_left(evidence: Evidence, trainer: Trainer) -> MemoryLeft | None:
    """Return the memory that the training used and left, of its GPU or of the host; None if it was not recorded."""
    if trains_on_gpu(evidence, trainer):
        allocator = evidence.get(find_allocator, trainer)
        if allocator is None or not allocator.total or allocator.peak_allocated.is_empty():
            return None
        peak = float(allocator.peak_allocated["value"].max() or 0.0)  # type: ignore[arg-type]
        return MemoryLeft(peak, max(0.0, allocator.total - peak))
    free = free_memory(evidence.timeline, trainer.host)
    samples = track_samples(evidence.timeline, trainer.process, "rss_bytes")
    if free is None or samples.is_empty():
        return None
    return MemoryLeft(float(samples["value"].max() or 0.0), max(0.0, free))  # type: ignore[arg-type]
