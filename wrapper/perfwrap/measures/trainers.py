"""Which processes train, on which thread, and as which rank."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from perfwrap.timeline.model import Timeline

TRAINING_SIGNS = (("optimizer", "scaler_step"), ("backward",), ("forward",), ("data",), ("step",))
"""Operations that tell a trainer, the surest first; the first one that any process shows decides."""

LAUNCH = r"(?i)^(?:cu|cuda|hip)\w*Launch\w*Kernel"
"""Calls that launch kernels: where somebody else recorded and nothing else tells, who launches most trains."""

NOT_TRAINERS = ("worker", "monitor")
"""Roles that never train, whatever they call."""

LEAST_SHARE_OF_THREADS = 0.2
"""A second thread of one process counts as a trainer from this share of the busiest thread's events on."""


@dataclass(frozen=True)
class Trainer:
    """One training thread: ``process`` and ``thread`` are tracks, ``rank`` is None outside of a job."""

    process: int
    thread: int
    name: str
    rank: int | None
    pid: int | None
    host: str


def find_trainers(timeline: Timeline) -> tuple[Trainer, ...]:
    """Return the trainers by rank, then by the time of their first event.

    Several processes that train without a rank (hogwild) are all trainers. Launchers, agents, DataLoader
    workers and actors that only run a model while others train it are not.
    """
    counted = _counted(timeline)
    for operations in TRAINING_SIGNS:
        signs = counted.filter(pl.col("operation").is_in(operations))
        if not signs.is_empty():
            return _named(_busiest_threads(signs))
    if "imported" in timeline.run:
        launches = counted.filter(pl.col("operation").str.contains(LAUNCH))
        # A backward pass launches from a thread of its own, which trains nothing by itself.
        return _named(
            _busiest_threads(launches).sort("count", descending=True).unique("parent", keep="first")
        )
    return ()


def _counted(timeline: Timeline) -> pl.DataFrame:
    """Return how often each thread of a possible trainer did what, thinned steps included."""
    detail = timeline.spans.group_by("track", "operation").agg(pl.len().alias("count"), pl.col("start").min())
    sums = timeline.sums.group_by("track", "operation").agg(pl.col("count").sum(), pl.col("start").min())
    counts = pl.concat([detail.with_columns(pl.col("count").cast(pl.Int64)), sums], how="vertical")
    tracks = timeline.tracks
    threads = tracks.filter(pl.col("kind") == "thread").select(pl.col("id").alias("track"), "parent")
    processes = tracks.filter(
        pl.col("kind") == "process", ~pl.col("role").is_in(NOT_TRAINERS).fill_null(False)
    )
    return (
        counts.group_by("track", "operation")
        .agg(pl.col("count").sum(), pl.col("start").min())
        .join(threads, on="track")
        .join(processes.select(pl.col("id").alias("parent"), "rank", "pid", "host"), on="parent")
    )


def _busiest_threads(signs: pl.DataFrame) -> pl.DataFrame:
    """Return the threads that show the sign about as often as the busiest thread of their process."""
    threads = signs.group_by("track", "parent", "rank", "pid", "host").agg(
        pl.col("count").sum(), pl.col("start").min()
    )
    enough = pl.col("count") >= LEAST_SHARE_OF_THREADS * pl.col("count").max().over("parent")
    return threads.filter(enough).sort("rank", "start", "track", nulls_last=True)


def _named(threads: pl.DataFrame) -> tuple[Trainer, ...]:
    """Return the trainers with the names that reports call them by."""
    found: list[Trainer] = []
    for number, row in enumerate(threads.iter_rows(named=True), start=1):
        name = f"trainer {number}" if threads.height > 1 else "trainer"
        if row["rank"] is not None:
            # Launchers start a rank again when one has failed.
            again = 1 + sum(trainer.rank == row["rank"] for trainer in found)
            name = f"rank {row['rank']}" + (f" (start {again})" if again > 1 else "")
        found.append(Trainer(row["parent"], row["track"], name, row["rank"], row["pid"], row["host"]))
    return tuple(found)
