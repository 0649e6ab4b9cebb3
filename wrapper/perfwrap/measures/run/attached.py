"""A job that was only observed from outside: its call stacks, and the cores that it used."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.stacks import ENOUGH, MAKING, Sampled, sampled
from perfwrap.timeline.lookup import track_samples
from perfwrap.timeline.model import Timeline

TRAINING = ("backward", "optimizer", "forward", "data")
"""Operations that identify the training thread, most reliable first."""


class Attached(Struct, frozen=True):
    """An observed job; counts are of samples."""

    pid: int
    ended: bool
    """Whether its first process ended during the observation."""
    samples: int
    """Samples of the job's main thread: the one that trains, otherwise that of the first process."""
    operations: tuple[tuple[str, int], ...]
    """The operations in those samples, most first; the user's own Python is ""."""
    hottest: Sampled | None
    """The functions of those samples in the user's own Python or in making batches."""
    workers: Sampled | None
    """The functions of the DataLoader workers' samples that made batches."""
    cores: float | None
    """Mean number of cores that its processes used together; None if not sampled."""


def find_attached(evidence: Evidence) -> Attached | None:
    """Return what is known about a job that perfwrap attached to; None for any other run."""
    timeline = evidence.timeline
    job = timeline.run.get("attached")
    if not isinstance(job, dict) or not isinstance(job.get("pid"), int):
        return None
    thread = _thread(timeline, job["pid"])
    rows = timeline.stacks.filter(pl.col("track").is_in([] if thread is None else [thread]))
    counted = rows.group_by(pl.col("operation").fill_null("")).agg(pl.col("weight").sum())
    own = pl.col("operation").is_null() | pl.col("operation").is_in(MAKING)
    making = timeline.stacks.filter(
        pl.col("operation").is_in(MAKING), ~pl.col("track").is_in(rows["track"].unique().to_list())
    )
    return Attached(
        pid=job["pid"],
        ended=bool(job.get("ended")),
        samples=int(rows["weight"].sum()),
        operations=tuple(counted.sort("weight", "operation", descending=[True, False]).iter_rows()),
        hottest=sampled(rows.filter(own)),
        workers=sampled(making),
        cores=_cores(timeline),
    )


def _thread(timeline: Timeline, pid: int) -> int | None:
    """Return the job's main thread, None without call stack samples of it."""
    counted = timeline.stacks.group_by("track", "operation").agg(pl.col("weight").sum())
    for operation in TRAINING:
        found = counted.filter(pl.col("operation") == operation).sort("weight", "track", descending=True)
        if found.height and found["weight"][0] >= ENOUGH:
            return int(found["track"][0])
    first = timeline.tracks.filter(pl.col("kind") == "thread", pl.col("pid") == pid, pl.col("tid") == pid)
    known = first.filter(pl.col("id").is_in(timeline.stacks["track"].unique().to_list()))
    return int(known["id"][0]) if known.height else None


def _cores(timeline: Timeline) -> float | None:
    """Return the mean number of cores that all processes used together."""
    processes = timeline.tracks.filter(pl.col("kind") == "process")["id"].to_list()
    series = [track_samples(timeline, track, "cpu_cores") for track in processes]
    used = [(rows["time"][-1] - rows["time"][0], rows["value"].mean()) for rows in series if rows.height > 1]
    start = min((rows["time"][0] for rows in series if rows.height > 1), default=0)
    end = max((rows["time"][-1] for rows in series if rows.height > 1), default=0)
    if end <= start:
        return None
    return sum(length * float(mean) for length, mean in used) / (end - start)  # type: ignore[arg-type]
