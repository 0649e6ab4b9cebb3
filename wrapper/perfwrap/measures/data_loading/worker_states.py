"""The states of each DataLoader worker: making batches, running, waiting for a disk, and its number of threads."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.data_loading.batch_making import SampleTimes, sample_times, workers_of
from perfwrap.measures.data_loading.loaders import LoaderUse
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.coverage import RECORDER
from perfwrap.timeline.lookup import mean_over, track_samples
from perfwrap.timeline.model import Timeline

DEFAULT_THREADS = 3
"""Threads of a worker that has started none: its own, the one that sends batches, and one of torch (torch 2.13)."""


class WorkerState(Struct, frozen=True):
    """One worker in the steady loop; figures are None if not recorded."""

    process: int
    batches: int
    median_fetch_ns: float
    busy_share: float
    """The share of its time in which it made batches; otherwise it waited for requests."""
    samples: SampleTimes | None
    cores: float | None
    """CPU time over wall time."""
    running_share: float | None
    """The share of samples in which its main thread was running or runnable."""
    disk_wait_share: float | None
    """The share of samples in which it waited for a disk or a network file system."""
    read_bytes_per_s: float | None
    threads: float | None
    """Number of operating system threads, without perfwrap's own."""
    lock_share: float | None = None
    """The share of samples in which it waited for a lock of another process; None if unknown."""


class MakingStates(Struct, frozen=True):
    """The states while batches are made, as means over the workers: shares of that time."""

    wanting_share: float
    """Running or runnable."""
    cpu_starvation: float
    """Part of that without a core, because other processes used them (CPU starvation)."""
    disk_share: float
    """Waiting for a disk or a network file system."""
    read_bytes_per_s: float | None
    """From storage, all workers together."""
    lock_share: float | None = None
    """Waiting for locks of other processes; None if unknown."""


def find_worker_states(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> tuple[WorkerState, ...]:
    """Return the workers of a loader that made batches in the steady loop, with their states."""
    timeline = evidence.timeline
    account = evidence.get(find_account, trainer)
    states = []
    for process in workers_of(timeline, trainer, loader.name):
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
    """Return the states of one worker."""

    def mean(metric: str) -> float | None:
        return mean_over(track_samples(timeline, process, metric), account.start, account.end)

    threads = mean("threads")
    if threads is not None and RECORDER in timeline.stacks["source"]:
        threads -= 1.0  # the recorder's own, which samples stacks
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
        threads=threads,
        lock_share=_lock_share(mean("file_lock_wait_share"), mean("lock_wait_share"), threads),
    )


def _lock_share(file_locks: float | None, locks: float | None, threads: float | None) -> float | None:
    """Return how much a worker waits for locks of other processes.

    A lock in memory may belong to one of its own threads; without such threads it belongs to another process.
    """
    if file_locks is None or locks is None or threads is None:
        return None
    return file_locks + (locks if threads < DEFAULT_THREADS + 0.5 else 0.0)


def find_making_states(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> MakingStates | None:
    """Return the states while a loader's batches are made: running, waiting for a disk; None if not sampled."""
    if loader.workers:
        return _in_workers(evidence.get(find_worker_states, trainer, loader))
    return _in_training_thread(evidence, trainer, loader.share)


def _in_workers(states: tuple[WorkerState, ...]) -> MakingStates | None:
    """Return the states while batches are made; None if the monitors did not sample the workers."""
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
        cpu_starvation=max(0.0, wanting_share - used / busy),
        disk_share=min(1.0 - wanting_share, sum(state.disk_wait_share or 0.0 for state in seen) / busy),
        read_bytes_per_s=sum(read) if read else None,
        lock_share=min(1.0 - wanting_share, sum(locks) / busy) if len(locks) == len(seen) else None,
    )


def _in_training_thread(evidence: Evidence, trainer: Trainer, share: float) -> MakingStates | None:
    """Return the same if the training thread makes its batches itself, during ``share`` of the loop.

    Assumes that all of its waits for disks are in that time, and that it runs during the rest of the loop.
    """
    account = evidence.get(find_account, trainer)

    def mean(metric: str) -> float | None:
        samples = track_samples(evidence.timeline, trainer.process, metric)
        return mean_over(samples, account.start, account.end)

    running, disk = mean("running_share"), mean("disk_wait_share")
    if running is None or disk is None or not share:
        return None
    wanting = min(1.0, max(0.0, 1.0 - (1.0 - running) / share))
    used = wanting * min(1.0, (mean("cpu_cores") or running) / running) if running else 0.0
    disk_share = min(1.0 - wanting, disk / share)
    return MakingStates(wanting, wanting - used, disk_share, mean("read_bytes_per_s"))


def cpu_starvation(evidence: Evidence, trainer: Trainer) -> float:
    """Return the share of the loop in which the training thread was runnable but had no core; 0 if not sampled."""
    running, used = running_and_used(evidence.timeline, trainer, evidence.get(find_account, trainer))
    return 0.0 if running is None or used is None else max(0.0, running - used)


def running_and_used(
    timeline: Timeline, trainer: Trainer, account: Account
) -> tuple[float | None, float | None]:
    """Return the share of samples in which a trainer's process was running or runnable, and the cores that it used."""
    running, used = (
        mean_over(track_samples(timeline, trainer.process, metric), account.start, account.end)
        for metric in ("running_share", "cpu_cores")
    )
    return running, used
