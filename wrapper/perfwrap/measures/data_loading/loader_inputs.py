"""The measured inputs of the simulation of a loader: the times of single batches, and the cores that its loop has."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.loop_events import Flags, Integers
from perfwrap.measures.data_loading.batch_making import workers_of
from perfwrap.measures.data_loading.loader_simulation import Cores
from perfwrap.measures.data_loading.loaders import LoaderUse, find_loaders
from perfwrap.measures.data_loading.worker_states import running_and_used
from perfwrap.measures.data_loading.workers import worker_processes
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.host.cores_taken import find_cores_of_others
from perfwrap.measures.host.processors import find_processors
from perfwrap.measures.ranks.concurrent_loops import find_trainers_beside
from perfwrap.measures.steps.steps import Steps, find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import host_facts, mean_over, track_samples
from perfwrap.timeline.model import Timeline

UNKNOWN_PAIR_SPEED = (0.6, 1.0)
"""The speed of each of two virtual cores while both are busy, if it was not measured: from threads of one core, which
gain a fifth from each other, to separate cores."""

FEWEST_CORES = 2.0
"""The cores at the unfavourable end if their number is unknown."""
SEPARATE_CORES = (0.9, 1.0)
"""The same for cores that are known to be separate: they share caches and memory."""


class BatchTimes(Struct, frozen=True):
    """The times of single batches of a loader that were recorded in detail, in order; nanoseconds."""

    making: tuple[float, ...]
    """Making each batch: in the workers, in the order in which they started, or in the training thread."""
    using: tuple[float, ...]
    """From one batch to the next request, with receiving the batch: no queue makes that shorter."""
    waits: tuple[float, ...]
    """The wait after each use, without receiving."""
    received: tuple[float, ...] = ()
    """Part of each use: receiving the batch from a worker."""


class SharedCores(Struct, frozen=True):
    """The cores that one training and its workers have, among ranks that do the same."""

    cores: float | None
    """Usable cores per rank; None if unknown."""
    ranks: int
    """How many trainers on this host have such a loader: a change of the script changes all of them."""
    taken: float
    """Part of ``cores`` that other programs, and trainers of the run with other loaders, used on average."""
    pair_speed: tuple[float, float]
    """The speed of each of two virtual cores while both are busy, least and most: measured with two kinds of work."""

    def fair(self, running: float) -> Cores:
        """Return the cores if the others get less of them when the training needs more, as the scheduler does it.

        ``running`` is how many tasks of the training needed a core when ``taken`` was measured.
        """
        if self.cores is None:
            return Cores(None)
        free = max(1e-3, self.cores - self.taken)
        tasks = self.taken if running <= free else self.taken * running / free
        return Cores(self.cores, self.pair_speed[1], tasks)

    def taken_away(self) -> Cores:
        """Return the cores if the others keep all that they used."""
        if self.cores is None:
            return Cores(FEWEST_CORES, self.pair_speed[0])
        return Cores(max(0.1, self.cores - self.taken), self.pair_speed[0])


def find_shared_cores(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> SharedCores:
    """Return the cores that a trainer and the workers of a loader have."""
    timeline = evidence.timeline
    beside = [other for other in evidence.get(find_trainers_beside, trainer) if other.host == trainer.host]
    same = [other for other in beside if other == trainer or _has_such(evidence, other, loader)]
    usable = evidence.get(find_processors, trainer).usable
    taken = evidence.get(find_cores_of_others, trainer) + sum(
        _cores_used(evidence, other) for other in beside if other not in same
    )
    return SharedCores(
        cores=None if usable is None else usable / len(same),
        ranks=len(same),
        taken=0.0 if usable is None else min(taken, usable) / len(same),
        pair_speed=_pair_speed(host_facts(timeline, trainer.host)),
    )


def _has_such(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> bool:
    """Return whether a trainer has a training loader from the same line of the same program."""
    own = evidence.get(find_loaders, trainer)
    return any(each.training and each.created == loader.created is not None for each in own)


def _cores_used(evidence: Evidence, trainer: Trainer) -> float:
    """Return the mean number of cores that a trainer and its workers used; 0 if not sampled."""
    timeline, account = evidence.timeline, evidence.get(find_account, trainer)
    _, own = running_and_used(timeline, trainer, account)
    workers = [
        mean_over(track_samples(timeline, process, "cpu_cores"), account.start, account.end)
        for process in worker_processes(timeline, trainer)
    ]
    return (own or 0.0) + sum(used or 0.0 for used in workers)


def _pair_speed(facts: dict[str, str]) -> tuple[float, float]:
    """Return what the monitors measured of two virtual cores after the command had ended."""
    try:
        found = [min(1.0, float(word)) for word in facts.get("cpu_pair_speed", "").split()]
    except ValueError:
        found = []
    if found and min(found) > 0.0:
        return (min(found), max(found))
    if facts.get("cpu_threads_per_core") == "1" and facts.get("virtualisation") == "none seen":
        return SEPARATE_CORES
    return UNKNOWN_PAIR_SPEED


def find_batch_times(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> BatchTimes:
    """Return the times of a loader's batches in the steady loop; empty if none was recorded in detail."""
    timeline = evidence.timeline
    account = evidence.get(find_account, trainer)
    own = timeline.spans.filter(
        pl.col("track") == trainer.thread,
        pl.col("operation").is_in(["data", "data_end", "loader_start"]),
        pl.col("name") == loader.name,
    ).sort("start")
    starts = _epoch_starts(own)
    inside = pl.col("start").is_between(account.start, account.end, closed="left")
    using, waits, received = _uses(
        timeline, evidence.get(find_steps, trainer), own.filter(inside, operation="data"), loader.name, starts
    )
    making = _fetches(timeline, trainer, account, loader.name, starts) if loader.workers else waits
    return BatchTimes(tuple(making), tuple(using), tuple(waits), tuple(received))


def _fetches(
    timeline: Timeline, trainer: Trainer, account: Account, name: str, starts: tuple[Integers, Integers]
) -> list[float]:
    """Return the time to make each batch, in the order in which workers started them."""
    processes = workers_of(timeline, trainer, name)
    threads = timeline.tracks.filter(pl.col("kind") == "thread", pl.col("parent").is_in(processes))
    spans = timeline.spans.filter(
        pl.col("track").is_in(threads["id"].to_list()),
        pl.col("operation") == "fetch",
        pl.col("start").is_between(account.start, account.end, closed="left"),
    ).sort("start")
    apart = ~_among(spans["start"].to_numpy(), starts)
    return [float(value) for value in spans["duration"].to_numpy()[apart]]


def _uses(
    timeline: Timeline, steps: Steps, waits: pl.DataFrame, name: str, starts: tuple[Integers, Integers]
) -> tuple[list[float], list[float], list[float]]:
    """Return the times from one batch to the next request, the waits, and the part of the uses that receives the batch.

    Of batches that were recorded in detail. Receiving a batch belongs to its use: no queue makes it shorter.
    """
    start, took = waits["start"].to_numpy(), waits["duration"].to_numpy()
    queue = timeline.marks.filter(
        pl.col("name") == "queue", pl.col("detail") == name, pl.col("value") >= 1, pl.col("value") % 1 == 0
    )
    ready = np.isin(start, queue["time"].to_numpy())
    usual = float(np.median(took[ready])) if ready.any() else 0.0
    received = np.where(ready, took, np.minimum(took, usual))
    step = np.searchsorted(steps.table["end"].to_numpy(), start, side="right")
    near = (np.diff(step) <= 1) & ~_among(start, starts)[:-1] & ~_among(start, starts)[1:]
    uses = (start[1:] - start[:-1] - took[:-1] + received[:-1])[near]
    apart = ((took - received)[:-1][near], received[:-1][near])
    return uses.astype(float).tolist(), *(each.astype(float).tolist() for each in apart)


def _epoch_starts(own: pl.DataFrame) -> tuple[Integers, Integers]:
    """Return when each epoch's first batch is made, start and end: no queue spans the end of an epoch."""
    begins = own["operation"].is_in(["loader_start", "data_end"]).to_numpy()[:-1]
    first = np.flatnonzero(begins & (own["operation"] == "data").to_numpy()[1:])
    start, end = own["start"].to_numpy(), (own["start"] + own["duration"]).to_numpy()
    return start[first], end[first + 1]


def _among(moments: Integers, intervals: tuple[Integers, Integers]) -> Flags:
    """Return which moments are in one of the sorted intervals."""
    start, end = intervals
    if not len(start):
        return np.zeros(len(moments), dtype=bool)
    place = np.searchsorted(start, moments, side="right") - 1
    return np.asarray((place >= 0) & (moments <= end[np.maximum(place, 0)]))
