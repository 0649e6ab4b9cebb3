"""How many processors the run may use, and how many it wanted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import polars as pl

from perfwrap.measures.account import Account
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.workers import worker_processes
from perfwrap.timeline.lookup import facts_of, host_facts, mean_over, samples_of, track_samples
from perfwrap.timeline.model import Timeline


@dataclass(frozen=True)
class Trained:
    """A trainer with what its processors depend on."""

    trainer: Trainer
    account: Account
    loaders: tuple[LoaderUse, ...]


@dataclass(frozen=True)
class Processors:
    """One host during the steady loop; figures are None where no monitor watched."""

    host: str
    usable: float | None
    """Cores by affinity and cgroup quota."""
    allowed: int | None
    """Cores by affinity alone."""
    online: int | None
    busy: float | None
    """Mean number of busy cores of the host."""
    stolen: float | None
    """Mean number of cores that a hypervisor took away while they were wanted."""
    runnable: float | None
    """Mean number of tasks that ran or wanted to."""
    tree_busy: float | None
    """Mean number of cores that the run's own processes used."""
    throttled_share: float | None
    """Share of the time in which the cgroup's quota held processes back."""
    wanted_threads: int | None
    """Compute threads that may run at once: torch's threads of all trainers, and of the DataLoader workers that run
    or want to."""
    trainers: int
    workers: int
    """DataLoader worker processes alive at once (as configured for the training loaders)."""
    threads_per_trainer: int | None
    threads_per_worker: int | None
    involuntary_switches_per_s: float | None
    """Of the trainers, together: how often the kernel took a processor away from a thread that wanted it."""

    @property
    def own_runnable(self) -> float | None:
        """The run's own part of the runnable tasks: that of the busy cores; all of them where that is not known."""
        if not self.runnable or not self.busy or self.tree_busy is None:
            return self.runnable
        return self.runnable * min(1.0, self.tree_busy / self.busy)


THREADS_PER_WORKER = 1
"""torch gives its DataLoader workers one compute thread each, unless the data set changes that."""


def find_processors(timeline: Timeline, host: str, trainers: tuple[Trained, ...]) -> Processors:
    """Return the processors of a host over the steady loops of its trainers, given with their loaders."""
    own = tuple(trained for trained in trainers if trained.trainer.host == host)
    start = min((trained.account.start for trained in own), default=0)
    end = max((trained.account.end for trained in own), default=0)
    facts = host_facts(timeline, host)
    mean = partial(_mean, timeline, host, start, end)
    threads = [_whole(facts_of(timeline, trained.trainer.process).get("threads")) for trained in own]
    known = [number for number in threads if number is not None]
    workers = sum(_workers(trained.loaders) for trained in own)
    bound = _bound(timeline, own)
    affinity = _whole(facts.get("cores_affinity"))
    return Processors(
        host=host,
        usable=_usable(facts, bound),
        allowed=None if affinity is None else max(affinity, bound),
        online=_whole(facts.get("cores_online")),
        busy=mean("host", "cpu_cores_busy"),
        stolen=mean("host", "stolen_cores"),
        runnable=mean("host", "runnable_tasks"),
        tree_busy=_tree_busy(timeline, host, start, end),
        throttled_share=mean("cgroup", "throttled_share"),
        wanted_threads=sum(known) + _wanting(timeline, own, workers, start, end) * THREADS_PER_WORKER
        if known and len(known) == len(own)
        else None,
        trainers=len(own),
        workers=workers,
        threads_per_trainer=max(known, default=None),
        threads_per_worker=THREADS_PER_WORKER if workers else None,
        involuntary_switches_per_s=_switches(timeline, own, start, end),
    )


def core_numbers(cores: str) -> frozenset[int]:
    """Return the cores that a text like ``0-3,8`` names."""
    ranges = [part.split("-") for part in cores.split(",") if part]
    return frozenset(core for part in ranges for core in range(int(part[0]), int(part[-1]) + 1))


def _bound(timeline: Timeline, own: tuple[Trained, ...]) -> int:
    """Return how many cores the trainers may use together.

    mpirun and srun bind each rank, with the launcher that watches the host, to cores of its own.
    """
    texts = [facts_of(timeline, trained.trainer.process).get("cores", "") for trained in own]
    return len(frozenset[int]().union(*map(core_numbers, texts)))


def _usable(facts: Mapping[str, str], bound: int) -> float | None:
    """Return the cores that the monitor may use, or the trainers where those are more."""
    seen, quota = _number(facts.get("cores_usable")), _number(facts.get("cpu_quota_cores"))
    return None if seen is None else max(seen, min(float(bound), quota or bound))


def _mean(timeline: Timeline, host: str, start: int, end: int, entity: str, metric: str) -> float | None:
    """Return the mean of a series of the host."""
    return mean_over(samples_of(timeline, entity, metric, host), start, end)


def _tree_busy(timeline: Timeline, host: str, start: int, end: int) -> float | None:
    """Return the mean number of cores that the run's processes used together."""
    processes = timeline.tracks.filter(
        pl.col("kind") == "process", pl.col("host") == host, (pl.col("role") != "monitor").fill_null(True)
    )
    counters = timeline.tracks.filter(
        pl.col("kind") == "counter",
        pl.col("name") == "cpu_cores",
        pl.col("parent").is_in(processes["id"].to_list()),
    )
    samples = timeline.samples.filter(pl.col("track").is_in(counters["id"].to_list()))
    inside = _cores_in(samples, start, end)
    return _cores_in(samples) if inside is None else inside


def _cores_in(samples: pl.DataFrame, start: int | None = None, end: int | None = None) -> float | None:
    """Return the mean of the sum of all series between two times; None when there is none.

    A value stands for the time since the one before it in its series, because many processes are not looked at
    all at once; a first value for as long as values usually do.
    """
    time, gap = pl.col("time"), pl.col("time").diff().over("track")
    spans = samples.select(
        "value",
        time.alias("end"),
        (time - gap.fill_null(gap.median()).fill_null(1)).cast(pl.Int64).alias("start"),
    )
    inside = spans.with_columns(pl.col("start", "end").clip(start, end))
    whole = inside.select(pl.col("end").max() - pl.col("start").min()).item()
    used = inside.select((pl.col("value") * (pl.col("end") - pl.col("start"))).sum()).item()
    return float(used / whole) if whole else None


def _switches(timeline: Timeline, own: tuple[Trained, ...], start: int, end: int) -> float | None:
    """Return the involuntary context switches of the trainers, together."""
    found = [
        mean_over(track_samples(timeline, process, "involuntary_switches_per_s"), start, end)
        for process in sorted({trained.trainer.process for trained in own})
    ]
    known = [value for value in found if value is not None]
    return sum(known) if known else None


def _workers(loaders: tuple[LoaderUse, ...]) -> int:
    """Return how many workers feed the training at once."""
    return sum(loader.workers or 0 for loader in loaders if loader.training)


def _wanting(timeline: Timeline, own: tuple[Trained, ...], workers: int, start: int, end: int) -> int:
    """Return how many workers run or want to at once: those that wait for a disk or a server need no core."""
    looks = [
        mean_over(track_samples(timeline, process, "running_share"), start, end)
        for trained in own
        for process in worker_processes(timeline, trained.trainer)
    ]
    known = [share for share in looks if share is not None]
    return min(workers, math.ceil(sum(known))) if known else workers


def _number(text: str | None) -> float | None:
    """Return a number that a fact holds."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _whole(text: str | None) -> int | None:
    """Return a whole number that a fact holds."""
    number = _number(text)
    return None if number is None else int(number)
