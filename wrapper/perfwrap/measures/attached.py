"""What can be said about a job that was only watched from outside: its stacks, and the processors that it used."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from perfwrap.measures.stacks import ENOUGH, MAKING, Sampled, sampled
from perfwrap.timeline.lookup import track_samples
from perfwrap.timeline.model import Timeline

TRAINING = ("backward", "optimizer", "forward", "data")
"""Operations that tell the thread that trains, the surest first."""


@dataclass(frozen=True)
class Attached:
    """A watched job; counts are of samples."""

    pid: int
    ended: bool
    """Whether its first process ended while it was watched."""
    samples: int
    """Of the thread that stands for the job: the one that trains, or else that of the first process."""
    operations: tuple[tuple[str, int], ...]
    """What was at work in those samples, most first; the user's own Python is ""."""
    hottest: Sampled | None
    """The functions of those samples that were in the user's own Python, or made batches."""
    workers: Sampled | None
    """The functions of the DataLoader workers' samples that made batches."""
    cores: float | None
    """Cores that its processes used together, as a mean; None where nobody sampled them."""


def find_attached(timeline: Timeline) -> Attached | None:
    """Return what is known about a job that perfwrap attached to; None for any other run."""
    told = timeline.run.get("attached")
    if not isinstance(told, dict) or not isinstance(told.get("pid"), int):
        return None
    thread = _thread(timeline, told["pid"])
    rows = timeline.stacks.filter(pl.col("track").is_in([] if thread is None else [thread]))
    counted = rows.group_by(pl.col("operation").fill_null("")).agg(pl.col("weight").sum())
    own = pl.col("operation").is_null() | pl.col("operation").is_in(MAKING)
    making = timeline.stacks.filter(
        pl.col("operation").is_in(MAKING), ~pl.col("track").is_in(rows["track"].unique().to_list())
    )
    return Attached(
        pid=told["pid"],
        ended=bool(told.get("ended")),
        samples=int(rows["weight"].sum()),
        operations=tuple(counted.sort("weight", "operation", descending=[True, False]).iter_rows()),
        hottest=sampled(rows.filter(own)),
        workers=sampled(making),
        cores=_cores(timeline),
    )


def _thread(timeline: Timeline, pid: int) -> int | None:
    """Return the thread that stands for the job, None where no stack of it was sampled."""
    counted = timeline.stacks.group_by("track", "operation").agg(pl.col("weight").sum())
    for operation in TRAINING:
        found = counted.filter(pl.col("operation") == operation).sort("weight", "track", descending=True)
        if found.height and found["weight"][0] >= ENOUGH:
            return int(found["track"][0])
    first = timeline.tracks.filter(pl.col("kind") == "thread", pl.col("pid") == pid, pl.col("tid") == pid)
    known = first.filter(pl.col("id").is_in(timeline.stacks["track"].unique().to_list()))
    return int(known["id"][0]) if known.height else None


def _cores(timeline: Timeline) -> float | None:
    """Return the mean of the cores that all processes used together."""
    processes = timeline.tracks.filter(pl.col("kind") == "process")["id"].to_list()
    series = [track_samples(timeline, track, "cpu_cores") for track in processes]
    used = [(rows["time"][-1] - rows["time"][0], rows["value"].mean()) for rows in series if rows.height > 1]
    start = min((rows["time"][0] for rows in series if rows.height > 1), default=0)
    end = max((rows["time"][-1] for rows in series if rows.height > 1), default=0)
    if end <= start:
        return None
    return sum(length * float(mean) for length, mean in used) / (end - start)  # type: ignore[arg-type]
