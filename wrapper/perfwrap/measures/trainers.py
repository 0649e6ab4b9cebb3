"""Which processes train, on which thread, and as which rank."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.evidence import Evidence
from perfwrap.timeline.lookup import once
from perfwrap.timeline.model import Timeline

TRAINING_SIGNS = (("optimizer", "scaler_step"), ("backward",), ("forward",), ("data",), ("step",))
"""Operations that identify a training thread, most reliable first; the first one found in any process decides."""

LAUNCH = r"(?i)^(?:cu|cuda|hip)\w*Launch\w*Kernel"
"""Calls that launch kernels: if another tool recorded, the thread with most launches trains."""

NOT_TRAINERS = ("worker", "monitor")
"""Roles of processes that never train, whatever they call."""

RESTARTS = "restart_count"
"""The fact with the number of restarts of the ranks by the launcher."""

MIN_THREAD_SHARE = 0.2
"""Share of the busiest thread's events from which a second thread of a process counts as training."""

MAX_PER_RANK = 64
"""How many training threads of one rank, or without a rank, are analyzed, those with most steps first: a program may
start thousands of children that make one step each."""


class Trainer(Struct, frozen=True):
    """One training thread: ``process`` and ``thread`` are tracks, ``rank`` is None outside a job."""

    process: int
    thread: int
    name: str
    rank: int | None
    pid: int | None
    host: str
    start: int = 1
    """Which start of its rank this is, from 1: launchers restart a rank after a failure."""
    first_ns: int = 0
    """Start of the first event that identifies it."""
    last_ns: int = 0
    """End of the last of them."""


def find_trainers(evidence: Evidence) -> tuple[Trainer, ...]:
    """Return the trainers by rank, then by the time of their first event.

    Several processes that train without a rank (hogwild) are all trainers. Launchers, agents, DataLoader workers and
    actors that only run a model while others train it are not. Of very many without separate ranks only the busiest are
    returned (`MAX_PER_RANK`); `training_processes` returns all.
    """
    beside = pl.col("count").rank("ordinal", descending=True).over("rank")
    return _named(
        _training_threads(evidence.timeline).filter(beside <= MAX_PER_RANK), _restarts(evidence.timeline)
    )


def training_processes(evidence: Evidence) -> frozenset[int]:
    """Return the tracks of all processes that trained, including those that are not analyzed."""
    return frozenset(_training_threads(evidence.timeline)["parent"].to_list())


def _training_threads(timeline: Timeline) -> pl.DataFrame:
    """Return the threads that train, by rank and then by the time of their first event."""
    return once(timeline, "training_threads", _find_training_threads)


def _find_training_threads(timeline: Timeline) -> pl.DataFrame:
    """Return the threads with the most reliable sign of training that any thread has."""
    counted = _counted(timeline)
    for operations in TRAINING_SIGNS:
        signs = counted.filter(pl.col("operation").is_in(operations))
        if not signs.is_empty():
            return _busiest_threads(signs)
    launches = counted.filter(pl.col("operation").str.contains(LAUNCH), "imported" in timeline.run)
    # A backward pass launches from a separate thread, which does not train by itself.
    busiest = _busiest_threads(launches).sort("count", descending=True).unique("parent", keep="first")
    return busiest.sort("rank", "start", "track", nulls_last=True)


def _counted(timeline: Timeline) -> pl.DataFrame:
    """Return how often each candidate thread ran each operation, including steps without detail."""
    end = (pl.col("start") + pl.col("duration")).max().alias("end")
    # Grouping a table copies it, so only what is needed.
    spans = timeline.spans.select("track", "operation", "start", "duration")
    detail = spans.group_by("track", "operation").agg(pl.len().alias("count"), pl.col("start").min(), end)
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
    """Return the threads that run the operation about as often as the busiest thread of their process."""
    threads = signs.group_by("track", "parent", "rank", "pid", "host").agg(
        pl.col("count").sum(), pl.col("start").min(), pl.col("end").max()
    )
    enough = pl.col("count") >= MIN_THREAD_SHARE * pl.col("count").max().over("parent")
    return threads.filter(enough).sort("rank", "start", "track", nulls_last=True)


def _restarts(timeline: Timeline) -> dict[int, int]:
    """Return the number of restarts by torchrun before each process started, if known."""
    known = timeline.facts.filter(pl.col("key") == RESTARTS, pl.col("value").str.contains(r"^\d+$"))
    return dict(zip(known["track"].to_list(), known["value"].cast(pl.Int64).to_list(), strict=True))


def _named(threads: pl.DataFrame, restarts: dict[int, int]) -> tuple[Trainer, ...]:
    """Return the trainers with their names in reports.

    If the launcher does not say it, a process of the same rank that started after the previous one had ended is a
    restart of that rank; one that started earlier trains at the same time.
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
