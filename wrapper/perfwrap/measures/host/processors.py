"""How many cores the run may use, and how many it needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.data_loading.loaders import LoaderUse, find_loaders
from perfwrap.measures.data_loading.workers import worker_processes
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.concurrent_loops import find_trainers_beside
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import facts_of, host_facts, mean_over, samples_of, track_samples
from perfwrap.timeline.model import Timeline

WANTED_PER_CORE = 1.5
"""Compute threads per usable core from which they are too many; one worker next to a training process is no
problem."""
RUNNABLE_PER_CORE = 1.25
"""Runnable tasks per usable core from which the threads slow each other down."""


class TrainerLoad(Struct, frozen=True):
    """A trainer with the data that its CPU figures depend on."""

    trainer: Trainer
    account: Account
    loaders: tuple[LoaderUse, ...]


class Processors(Struct, frozen=True):
    """One host during the steady loop; figures are None if not monitored."""

    host: str
    usable: float | None
    """Cores by CPU affinity and cgroup quota."""
    allowed: int | None
    """Cores by CPU affinity alone."""
    online: int | None
    busy: float | None
    """Mean number of busy cores of the host."""
    stolen: float | None
    """Mean number of cores that a hypervisor took away while they were needed."""
    runnable: float | None
    """Mean number of running or runnable tasks."""
    tree_busy: float | None
    """Mean number of cores that the run's own processes used."""
    throttled_share: float | None
    """Share of the time in which the cgroup quota stopped processes."""
    wanted_threads: int | None
    """Compute threads that may run at once: torch's threads of all trainers, and those of the DataLoader workers that
    are running or runnable."""
    trainers: int
    workers: int
    """DataLoader worker processes alive at once (as configured for the training loaders)."""
    threads_per_trainer: int | None
    threads_per_worker: int | None
    involuntary_switches_per_s: float | None
    """How often the kernel preempted a thread of the trainers, together."""

    @property
    def own_runnable(self) -> float | None:
        """The run's own part of the runnable tasks, from its part of the busy cores; all of them if unknown."""
        if not self.runnable or not self.busy or self.tree_busy is None:
            return self.runnable
        return self.runnable * min(1.0, self.tree_busy / self.busy)


THREADS_PER_WORKER = 1
"""torch gives each DataLoader worker one compute thread, unless the dataset changes that."""


def find_processors(evidence: Evidence, trainer: Trainer) -> Processors:
    """Return the processors of a trainer's host while it and those beside it trained there."""
    beside = evidence.get(find_trainers_beside, trainer)
    return evidence.get(_find_shared, tuple(other for other in beside if other.host == trainer.host))


def _find_shared(evidence: Evidence, trainers: tuple[Trainer, ...]) -> Processors:
    """Return the processors of a host over the steady loops of the trainers that share it."""
    timeline, host = evidence.timeline, trainers[0].host
    own = tuple(
        TrainerLoad(trainer, evidence.get(find_account, trainer), evidence.get(find_loaders, trainer))
        for trainer in trainers
    )
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


def _bound(timeline: Timeline, own: tuple[TrainerLoad, ...]) -> int:
    """Return how many cores the trainers may use together.

    mpirun and srun bind each rank, together with the launcher that monitors the host, to its own cores.
    """
    texts = [facts_of(timeline, trained.trainer.process).get("cores", "") for trained in own]
    return len(frozenset[int]().union(*map(core_numbers, texts)))


def _usable(facts: Mapping[str, str], bound: int) -> float | None:
    """Return the cores that the monitor may use, or the trainers if those are more."""
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
    """Return the mean of the sum of all series between two times; None if there are none.

    A value covers the time since the previous one in its series, because many processes are not sampled at the same
    moment; a first value covers the usual time between values.
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


def _switches(timeline: Timeline, own: tuple[TrainerLoad, ...], start: int, end: int) -> float | None:
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


def _wanting(timeline: Timeline, own: tuple[TrainerLoad, ...], workers: int, start: int, end: int) -> int:
    """Return how many workers are running or runnable at once: those that wait for a disk or a server need no core."""
    looks = [
        mean_over(track_samples(timeline, process, "running_share"), start, end)
        for trained in own
        for process in worker_processes(timeline, trained.trainer)
    ]
    known = [share for share in looks if share is not None]
    return min(workers, math.ceil(sum(known))) if known else workers


def _number(text: str | None) -> float | None:
    """Return the number in a fact."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _whole(text: str | None) -> int | None:
    """Return the integer in a fact."""
    number = _number(text)
    return None if number is None else int(number)
