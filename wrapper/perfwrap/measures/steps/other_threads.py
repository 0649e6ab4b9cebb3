"""Optimizers that step in several threads of a process: a loop is that of one thread, so it has too few steps."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer

MIN_SHARE = 0.02
"""Share of the steps from which those of other threads matter."""


class StepsElsewhere(Struct, frozen=True):
    """Steps of a trainer's optimizers: ``elsewhere`` of ``all`` were made by ``threads`` other threads."""

    elsewhere: int
    all: int
    threads: int


def find_steps_elsewhere(evidence: Evidence, trainer: Trainer) -> StepsElsewhere | None:
    """Return the steps that a trainer's optimizers made in other threads of its process; None if hardly any."""
    timeline = evidence.timeline
    threads = timeline.tracks.filter(pl.col("kind") == "thread", pl.col("parent") == trainer.process)["id"]
    is_step = (pl.col("operation") == "optimizer") & pl.col("track").is_in(threads.implode())
    spans = timeline.spans.filter(is_step).select("track", "name", pl.lit(1, pl.Int64).alias("count"))
    steps = pl.concat([spans, timeline.sums.filter(is_step).select("track", "name", "count")])
    is_own = pl.col("track") == trainer.thread
    shared = steps.filter(pl.col("name").is_in(steps.filter(is_own)["name"].unique().implode()))
    other = shared.filter(~is_own)
    elsewhere, every = int(other["count"].sum()), int(shared["count"].sum())
    if elsewhere < MIN_SHARE * every or not elsewhere:
        return None
    return StepsElsewhere(elsewhere, every, other["track"].n_unique())
