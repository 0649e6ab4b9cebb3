"""How many workers a loader needs and how many batches ahead, and what a step would take then.

A step is as fast as the slowest of: the rest of it, the workers that make its batch, and the processors that do the
work of both. Computed from what was measured, within the cores that the run may use (affinity and cgroup quota).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.loop import mean_step_ns, trains_on_gpu
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import Limit, step_without

if TYPE_CHECKING:
    from perfwrap.measures.evidence import Evidence

RECEIVE_NS = 900_000
"""What receiving a small batch from a worker costs the training thread: queue, unpickling, mapping shared
memory. The least that was measured with torch 2.13 on two busy cores, for 32 and for 768 KiB."""

MOST_WORKERS = 16
"""More workers than this are never advised; by then something else is the limit."""

MOST_PREFETCH = 64
"""More batches per worker than this are never advised: memory."""

ABOUT_AS_GOOD = 1.05
"""A number of workers is as good as a larger one when its steps take at most 5 % longer."""

NO_LONGER = 1.01
"""A queue is as good as a longer one when its steps take at most 1 % longer: it costs memory, no cores."""

DENIED_SHARE = 0.2
"""Share of the loop in which the training wanted a core and had none, from which receiving batches is slow for that
reason and becomes quicker when the workers have less to do."""

KEPT_WITH_FREE_CORES, KEPT_WITH_SHARED_CORES = 0.8, 0.5
"""The least share of the modelled gain that is promised; held against the mended twins of the workloads."""


@dataclass(frozen=True)
class Step:
    """A step as it was measured: ``now_ns`` in all, ``rest_ns`` of it not waiting for its batch."""

    now_ns: float
    rest_ns: float
    fetch_ns: float
    """Making its batch, in one process."""
    fetch_cpu_ns: float
    """Of that, running or wanting to run: what no number of workers can have overlap on one core."""
    work_ns: float
    """Processor time of the rest and of making the batch together."""
    workers: int
    cores: float | None
    threads: int
    on_gpu: bool

    @property
    def width(self) -> float:
        """How many cores the rest of the step keeps busy; on a GPU the one that launches."""
        if self.on_gpu or self.rest_ns <= 0:
            return 1.0
        return min(float(self.threads), max(1.0, (self.work_ns - self.fetch_cpu_ns) / self.rest_ns))

    @property
    def waiting_share(self) -> float:
        """The share of making a batch in which no processor is wanted: pauses, disks, networks."""
        return 1.0 - self.fetch_cpu_ns / self.fetch_ns if self.fetch_ns else 0.0

    def with_workers(self, workers: int) -> float:
        """Return the step's time with so many workers, when the training leaves them the cores they need."""
        cores = self.cores if self.cores is not None else float(workers + self.threads)
        left = max(1.0, cores - workers * (1.0 - self.waiting_share))
        rest_ns = self.rest_ns * max(1.0, self.width / left)
        limits = (Limit("workers", self.fetch_ns / workers), Limit("cores", self.work_ns / cores))
        receive_ns = 0.0 if self.workers else RECEIVE_NS
        kept_ns = max(rest_ns, *(limit.step_ns for limit in limits))
        return step_without(self.now_ns, self.now_ns - kept_ns - receive_ns, limits)

    def cheaper(self, removed_share: float, cpu: bool = True) -> Step:
        """Return the step if making a batch took so much less, of processor time if ``cpu``."""
        less = removed_share * self.fetch_ns
        less_cpu = min(less, self.fetch_cpu_ns) if cpu else 0.0
        return replace(
            self,
            fetch_ns=self.fetch_ns - less,
            fetch_cpu_ns=self.fetch_cpu_ns - less_cpu,
            work_ns=max(self.work_ns - less_cpu, 0.0),
        )


def measured_step(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> Step | None:
    """Return what was measured of a trainer's step and one loader; None where a batch's making is not known."""
    now_ns = mean_step_ns(evidence, trainer)
    if not now_ns or not loader.batches or (loader.workers and loader.making is None):
        return None
    # Receiving batches that are ready stays as it is, unless the workers take the cores that it needs.
    crowded = evidence.denied_share(trainer) >= DENIED_SHARE
    rest_ns = (1.0 - (loader.share if crowded else loader.late_share)) * now_ns
    processors = evidence.processors(trainer)
    on_gpu = trains_on_gpu(evidence, trainer)
    threads = 1 if on_gpu else processors.threads_per_trainer or 1
    states = evidence.making_states(trainer, loader)
    per_step = loader.batches / max(1, evidence.steps(trainer).steady)
    if not loader.workers:
        fetch_ns = loader.share * now_ns
        # Where a GPU does the rest, the host's thread may wait for it: that says nothing about making batches.
        fetch_cpu_ns = fetch_ns * (1.0 if states is None or on_gpu else states.wanting_share)
        # Without samples of the processors: one core makes the batch, and the training keeps its threads busy.
        busy = processors.tree_busy / max(1, processors.trainers) if processors.tree_busy else None
        work_ns = now_ns * busy if busy else fetch_cpu_ns + rest_ns * threads
    else:
        fetch_ns = (loader.fetch_ns or 0.0) * per_step
        fetch_cpu_ns = fetch_ns * (1.0 if states is None else states.wanting_share)
        work_ns = fetch_cpu_ns + (0.0 if on_gpu else rest_ns)
    return Step(
        now_ns=now_ns,
        rest_ns=rest_ns,
        fetch_ns=fetch_ns,
        fetch_cpu_ns=fetch_cpu_ns,
        work_ns=work_ns,
        workers=loader.workers or 0,
        cores=processors.usable,
        threads=threads,
        on_gpu=on_gpu,
    )


def best_workers(step: Step) -> int:
    """Return the smallest number of workers that is about as good as any; 0 when none of them gains.

    Workers that wait most of the time may be more than the cores.
    """
    cores = MOST_WORKERS if step.cores is None else math.floor(step.cores)
    able = cores - 1 if step.on_gpu or cores < 2 else cores
    most = min(MOST_WORKERS, math.floor(able / max(1.0 - step.waiting_share, able / MOST_WORKERS, 1e-9)))
    times = {workers: step.with_workers(workers) for workers in range(1, most + 1)}
    best_ns = min(times.values(), default=step.now_ns)
    if best_ns > step.now_ns - RECEIVE_NS:
        return 0
    return next(workers for workers, time_ns in times.items() if time_ns <= ABOUT_AS_GOOD * best_ns)


def saved(step: Step, step_ns: float, workers: int) -> tuple[float, float]:
    """Return the step-time ratios, best and worst, when the model promises ``step_ns`` with so many workers."""
    best = min(1.0, step_ns / step.now_ns) if step.now_ns else 1.0
    # With the last core in use there is none left for anybody else, and all share the memory.
    shared = step.cores is None or workers * (1.0 - step.waiting_share) + step.threads >= step.cores
    kept = KEPT_WITH_SHARED_CORES if shared else KEPT_WITH_FREE_CORES
    return (best, 1.0 - kept * (1.0 - best))


def played(fetches: Sequence[float], rests: Sequence[float], workers: int, prefetch: int) -> float:
    """Return the mean step of a loader that hands over batches in order, with these times of making and of using them.

    Plays what torch does: ``prefetch`` orders for each worker at first, dealt out in turn, and a new order for each
    batch that was received (torch/utils/data/dataloader.py).
    """
    ahead = workers * prefetch
    taken: list[float] = []
    free = [0.0] * workers
    asked = 0.0
    for number, (fetch, rest) in enumerate(zip(fetches, rests, strict=False)):
        ordered = taken[number - ahead] if number >= ahead else 0.0
        worker = number % workers
        free[worker] = max(ordered, free[worker]) + fetch
        taken.append(max(asked, free[worker]))
        asked = taken[-1] + rest
    return asked / len(taken) if taken else 0.0


def enough_prefetch(
    fetches: Sequence[float], rests: Sequence[float], workers: int, sizes: Iterable[int]
) -> tuple[int, float]:
    """Return the smallest of these prefetch factors that is about as good as any, and its mean step."""
    steps = {size: played(fetches, rests, workers, size) for size in sizes}
    best = min(steps.values())
    return next((size, time) for size, time in steps.items() if time <= NO_LONGER * best)
