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

RESTARTS = "restart_count"
"""The fact that says how often the launcher had restarted the ranks before."""

LEAST_SHARE_OF_THREADS = 0.2
"""A second thread of one process counts as a trainer from this share of the busiest thread's events on."""

MOST_BESIDE = 64
"""Of the trainers of one rank, or of none, so many are looked at, those with the most steps: a program may start
thousands of children that make a step each, and each one is a diagnosis of its own."""


@dataclass(frozen=True)
class Trainer:
    """One training thread: ``process`` and ``thread`` are tracks, ``rank`` is None outside of a job."""

    process: int
    thread: int
    name: str
    rank: int | None
    pid: int | None
    host: str
    start: int = 1
    """Which start of its rank it is: launchers start a rank anew when one has failed."""
    first_ns: int = 0
    """When the first event began that tells a trainer."""
    last_ns: int = 0
    """When the last of them ended."""


def find_trainers(timeline: Timeline) -> tuple[Trainer, ...]:
    """Return the trainers by rank, then by the time of their first event.

    Several processes that train without a rank (hogwild) are all trainers. Launchers, agents, DataLoader
    workers and actors that only run a model while others train it are not. Of very many without ranks of their own
    only the busiest are returned (`MOST_BESIDE`); `training_processes` knows all.
    """
    beside = pl.col("count").rank("ordinal", descending=True).over("rank")
    return _named(_training_threads(timeline).filter(beside <= MOST_BESIDE), _restarts(timeline))


def training_processes(timeline: Timeline) -> frozenset[int]:
    """Return the tracks of all processes that trained, also of those that are not looked at."""
    return frozenset(_training_threads(timeline)["parent"].to_list())


def _training_threads(timeline: Timeline) -> pl.DataFrame:
    """Return the threads that train, by rank and then by the time of their first event."""
    counted = _counted(timeline)
    for operations in TRAINING_SIGNS:
        signs = counted.filter(pl.col("operation").is_in(operations))
        if not signs.is_empty():
            return _busiest_threads(signs)
    launches = counted.filter(pl.col("operation").str.contains(LAUNCH), "imported" in timeline.run)
    # A backward pass launches from a thread of its own, which trains nothing by itself.
    return _busiest_threads(launches).sort("count", descending=True).unique("parent", keep="first")


def _counted(timeline: Timeline) -> pl.DataFrame:
    """Return how often each thread of a possible trainer did what, thinned steps included."""
    end = (pl.col("start") + pl.col("duration")).max().alias("end")
    detail = timeline.spans.group_by("track", "operation").agg(
        pl.len().alias("count"), pl.col("start").min(), end
    )
    sums = timeline.sums.group_by("track", "operation").agg(
        pl.col("count").sum(), pl.col("start").min(), pl.col("end").max()
    )
    counts = pl.concat([detail.with_columns(pl.col("count").cast(pl.Int64)), sums], how="vertical")
    tracks = timeline.tracks
    threads = tracks.filter(pl.col("kind") == "thread").select(pl.col("id").alias("track"), "parent")
    processes = tracks.filter(
        pl.col("kind") == "process", ~pl.col("role").is_in(NOT_TRAINERS).fill_null(False)
    )
    return (
        counts.group_by("track", "operation")
        .agg(pl.col("count").sum(), pl.col("start").min(), pl.col("end").max())
        .join(threads, on="track")
        .join(processes.select(pl.col("id").alias("parent"), "rank", "pid", "host"), on="parent")
    )


def _busiest_threads(signs: pl.DataFrame) -> pl.DataFrame:
    """Return the threads that show the sign about as often as the busiest thread of their process."""
    threads = signs.group_by("track", "parent", "rank", "pid", "host").agg(
        pl.col("count").sum(), pl.col("start").min(), pl.col("end").max()
    )
    enough = pl.col("count") >= LEAST_SHARE_OF_THREADS * pl.col("count").max().over("parent")
    return threads.filter(enough).sort("rank", "start", "track", nulls_last=True)


def _restarts(timeline: Timeline) -> dict[int, int]:
    """Return how often torchrun had restarted the ranks before each process began, where it said so."""
    told = timeline.facts.filter(pl.col("key") == RESTARTS, pl.col("value").str.contains(r"^\d+$"))
    return dict(zip(told["track"].to_list(), told["value"].cast(pl.Int64).to_list(), strict=True))


def _named(threads: pl.DataFrame, restarts: dict[int, int]) -> tuple[Trainer, ...]:
    """Return the trainers with the names that reports call them by.

    Without a word from the launcher, a process of the same rank that began after the one before it had ended is that
    rank started anew; one that began earlier trains beside it.
    """
    found: list[Trainer] = []
    for number, row in enumerate(threads.iter_rows(named=True), start=1):
        name, start = f"trainer {number}" if threads.height > 1 else "trainer", 1
        if row["rank"] is not None:
            earlier = [trainer for trainer in found if trainer.rank == row["rank"]]
            ended = {trainer.start for trainer in earlier if trainer.last_ns <= row["start"]}
            start = restarts.get(row["parent"], len(ended)) + 1
            beside = sum(trainer.start == start for trainer in earlier)
            name = f"rank {row['rank']}" + (f" (start {start})" if start > 1 else "")
            name += f" (process {beside + 1})" if beside else ""
        found.append(
            Trainer(
                *(row["parent"], row["track"], name, row["rank"], row["pid"], row["host"]),
                start=start,
                first_ns=row["start"],
                last_ns=row["end"],
            )
        )
    return tuple(found)
