"""What each worker of a DataLoader was at: making batches, running, waiting for a disk, and with how many threads."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from perfwrap.measures.account import Account
from perfwrap.measures.batch_making import SampleTimes, sample_times, workers_of
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import mean_over, track_samples
from perfwrap.timeline.model import Timeline

USUAL_THREADS = 3
"""Threads of a worker that has started none: its own, the one that sends batches, and one of torch's (torch 2.13)."""


@dataclass(frozen=True)
class WorkerState:
    """One worker in the steady loop; figures are None where nobody watched."""

    process: int
    batches: int
    median_fetch_ns: float
    busy_share: float
    """The share of its time in which it made batches, the rest being waits for orders."""
    samples: SampleTimes | None
    cores: float | None
    """Processor time over time."""
    running_share: float | None
    """The share of the looks at which its main thread ran, or wanted to."""
    disk_wait_share: float | None
    """The share of the looks at which it waited for a disk or a network file system."""
    read_bytes_per_s: float | None
    threads: float | None
    """Threads of the operating system's."""
    lock_share: float | None = None
    """The share of the looks at which it waited for a lock that another process holds; None where nobody can tell."""


@dataclass(frozen=True)
class MakingStates:
    """What making batches consists of, as a mean over the workers: shares of the time of making them."""

    wanting_share: float
    """Running, or wanting to."""
    denied_share: float
    """Of that, without a core: others had it."""
    disk_share: float
    """Waiting for a disk or a network file system."""
    read_bytes_per_s: float | None
    """Of all workers together, from storage."""
    lock_share: float | None = None
    """Waiting for locks that other processes hold; None where nobody can tell."""


def find_worker_states(
    timeline: Timeline, trainer: Trainer, account: Account, name: str
) -> tuple[WorkerState, ...]:
    """Return the workers of a loader that made batches in the steady loop, with what each was at."""
    states = []
    for process in workers_of(timeline, trainer, name):
        threads = timeline.tracks.filter(pl.col("kind") == "thread", pl.col("parent") == process)
        spans = timeline.spans.filter(
            pl.col("track").is_in(threads["id"].to_list()),
            pl.col("operation").is_in(["fetch", "idle"]),
            pl.col("start").is_between(account.start, account.end, closed="left"),
        )
        fetches = spans.filter(pl.col("operation") == "fetch")["duration"]
        if fetches.len():
            states.append(
                _state(timeline, account, process, fetches, int(fetches.sum()) / int(spans["duration"].sum()))
            )
    return tuple(states)


def _state(
    timeline: Timeline, account: Account, process: int, fetches: pl.Series, busy: float
) -> WorkerState:
    """Return what one worker was at."""

    def mean(metric: str) -> float | None:
        return mean_over(track_samples(timeline, process, metric), account.start, account.end)

    return WorkerState(
        process=process,
        batches=fetches.len(),
        median_fetch_ns=float(fetches.median()),  # type: ignore[arg-type]
        busy_share=busy,
        samples=sample_times(timeline, [process]),
        cores=mean("cpu_cores"),
        running_share=mean("running_share"),
        disk_wait_share=mean("disk_wait_share"),
        read_bytes_per_s=mean("read_bytes_per_s"),
        threads=mean("threads"),
        lock_share=_lock_share(mean("file_lock_wait_share"), mean("lock_wait_share"), mean("threads")),
    )


def _lock_share(file_locks: float | None, locks: float | None, threads: float | None) -> float | None:
    """Return how much a worker waits for other processes' locks.

    A lock in memory may as well be one of its own threads'; it is another process's where there are none to wait for.
    """
    if file_locks is None or locks is None or threads is None:
        return None
    return file_locks + (locks if threads < USUAL_THREADS + 0.5 else 0.0)


def making_states(states: tuple[WorkerState, ...]) -> MakingStates | None:
    """Return what making batches consists of; None where the monitors did not see the workers."""
    seen = [
        state for state in states if state.running_share is not None and state.disk_wait_share is not None
    ]
    busy = sum(state.busy_share for state in seen)
    if not busy:
        return None
    wanting = sum(state.running_share or 0.0 for state in seen)
    used = sum(state.cores or 0.0 for state in seen)
    read = [state.read_bytes_per_s for state in seen if state.read_bytes_per_s is not None]
    wanting_share = min(1.0, max(wanting, used) / busy)
    locks = [state.lock_share for state in seen if state.lock_share is not None]
    return MakingStates(
        wanting_share=wanting_share,
        denied_share=max(0.0, wanting_share - used / busy),
        disk_share=min(1.0 - wanting_share, sum(state.disk_wait_share or 0.0 for state in seen) / busy),
        read_bytes_per_s=sum(read) if read else None,
        lock_share=min(1.0 - wanting_share, sum(locks) / busy) if len(locks) == len(seen) else None,
    )


def training_thread_states(
    timeline: Timeline, trainer: Trainer, account: Account, share: float
) -> MakingStates | None:
    """Return the same where the training thread makes its batches itself, during ``share`` of the loop.

    All of its waits for disks are taken to lie there, and outside of it to run all the time.
    """

    def mean(metric: str) -> float | None:
        return mean_over(track_samples(timeline, trainer.process, metric), account.start, account.end)

    running, disk = mean("running_share"), mean("disk_wait_share")
    if running is None or disk is None or not share:
        return None
    wanting = min(1.0, max(0.0, 1.0 - (1.0 - running) / share))
    used = wanting * min(1.0, (mean("cpu_cores") or running) / running) if running else 0.0
    disk_share = min(1.0 - wanting, disk / share)
    return MakingStates(wanting, wanting - used, disk_share, mean("read_bytes_per_s"))


def denied_share(timeline: Timeline, trainer: Trainer, account: Account) -> float:
    """Return the share of the loop in which the training thread wanted a core and had none; 0 where nobody looked."""
    running, used = running_and_used(timeline, trainer, account)
    return 0.0 if running is None or used is None else max(0.0, running - used)


def running_and_used(
    timeline: Timeline, trainer: Trainer, account: Account
) -> tuple[float | None, float | None]:
    """Return the share of the looks at which a trainer's process ran or wanted to, and the cores that it used."""
    running, used = (
        mean_over(track_samples(timeline, trainer.process, metric), account.start, account.end)
        for metric in ("running_share", "cpu_cores")
    )
    return running, used
