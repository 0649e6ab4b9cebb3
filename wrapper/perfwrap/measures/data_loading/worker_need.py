"""How many workers and prefetched batches a loader needs, and the step time with them.

A step is as fast as the slowest of: the rest of the step, the workers that make its batch, and the cores that do the
work of both. Computed from measurements, within the usable cores (CPU affinity and cgroup quota).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from perfwrap.measures.account.loop_figures import mean_step_ns, trains_on_gpu
from perfwrap.measures.account.what_if import Limit, step_without
from perfwrap.measures.data_loading.loaders import LoaderUse
from perfwrap.measures.data_loading.worker_states import cpu_starvation, find_making_states
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.host.cores_taken import find_other_programs
from perfwrap.measures.host.processors import find_processors
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer

RECEIVE_NS = 900_000
"""Cost of receiving a small batch from a worker on the training thread: queue, unpickling, mapping shared memory. The
minimum measured with torch 2.13 on two busy cores, for 32 and for 768 KiB."""

MAX_WORKERS = 16
"""Maximum number of workers that is advised; beyond it something else is the limit."""

MAX_PREFETCH = 64
"""Maximum number of batches per worker that is advised, because of memory."""

ABOUT_AS_GOOD = 1.05
"""A number of workers is as good as a larger one if its steps take at most 5 % longer."""

PREFETCH_AS_GOOD = 1.01
"""A queue is as good as a longer one if its steps take at most 1 % longer: it costs memory, but no cores."""

MAX_STARVED_SHARE = 0.2
"""CPU starvation of the training thread (share of the loop without a core) from which it delays receiving batches, and
workers with less work make receiving faster."""

MIN_GAIN_WITH_FREE_CORES, MIN_GAIN_WITH_SHARED_CORES = 0.8, 0.5
"""Minimum share of the modelled gain; compared with the fixed versions of the workloads."""


class Step(Struct, frozen=True):
    """A measured step: ``now_ns`` in total, ``rest_ns`` of it without the wait for its batch."""

    now_ns: float
    rest_ns: float
    fetch_ns: float
    """The time to make its batch in one process."""
    fetch_cpu_ns: float
    """Part of that with a core or waiting for one: workers cannot overlap it on one core."""
    work_ns: float
    """CPU time of the rest and of making the batch together."""
    workers: int
    cores: float | None
    threads: int
    on_gpu: bool
    crowded: bool = False
    """Whether other programs took cores from the training, which the model of more workers does not know."""

    @property
    def width(self) -> float:
        """How many cores the rest of the step uses; on a GPU the one that launches."""
        if self.on_gpu or self.rest_ns <= 0:
            return 1.0
        return min(float(self.threads), max(1.0, (self.work_ns - self.fetch_cpu_ns) / self.rest_ns))

    @property
    def waiting_share(self) -> float:
        """The share of making a batch that needs no core: pauses, disks, networks."""
        return 1.0 - self.fetch_cpu_ns / self.fetch_ns if self.fetch_ns else 0.0

    def with_workers(self, workers: int) -> float:
        """Return the step time with so many workers, if the training leaves them the cores that they need."""
        cores = self.cores if self.cores is not None else float(workers + self.threads)
        left = max(1.0, cores - workers * (1.0 - self.waiting_share))
        rest_ns = self.rest_ns * max(1.0, self.width / left)
        limits = (Limit("workers", self.fetch_ns / workers), Limit("cores", self.work_ns / cores))
        receive_ns = 0.0 if self.workers else RECEIVE_NS
        kept_ns = max(rest_ns, *(limit.step_ns for limit in limits))
        return step_without(self.now_ns, self.now_ns - kept_ns - receive_ns, limits)

    def cheaper(self, removed_share: float, cpu: bool = True) -> Step:
        """Return the step if making a batch took less by this share, and less CPU time if ``cpu``."""
        less = removed_share * self.fetch_ns
        less_cpu = min(less, self.fetch_cpu_ns) if cpu else 0.0
        return replace(
            self,
            fetch_ns=self.fetch_ns - less,
            fetch_cpu_ns=self.fetch_cpu_ns - less_cpu,
            work_ns=max(self.work_ns - less_cpu, 0.0),
        )


def measured_step(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> Step | None:
    """Return the measured step of a trainer and one loader; None if the time to make a batch is unknown."""
    now_ns = mean_step_ns(evidence, trainer)
    if not now_ns or not loader.batches or (loader.workers and loader.making is None):
        return None
    # Receiving batches that are ready stays as it is, unless the workers take the cores that it needs.
    crowded = evidence.get(cpu_starvation, trainer) >= MAX_STARVED_SHARE
    rest_ns = (1.0 - (loader.share if crowded else loader.late_share)) * now_ns
    processors = evidence.get(find_processors, trainer)
    on_gpu = trains_on_gpu(evidence, trainer)
    threads = 1 if on_gpu else processors.threads_per_trainer or 1
    states = evidence.get(find_making_states, trainer, loader)
    per_step = loader.batches / max(1, evidence.get(find_steps, trainer).steady)
    if not loader.workers:
        fetch_ns = loader.share * now_ns
        # If a GPU does the rest, the host thread may wait for it, which says nothing about making batches.
        fetch_cpu_ns = fetch_ns * (1.0 if states is None or on_gpu else states.wanting_share)
        # Without CPU samples: one core makes the batch, and the training keeps its threads busy.
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
        crowded=evidence.get(find_other_programs, trainer) is not None,
    )


def best_workers(step: Step) -> int:
    """Return the smallest number of workers that is about as good as any; 0 if workers do not help.

    Workers that mostly wait may be more than the cores.
    """
    cores = MAX_WORKERS if step.cores is None else math.floor(step.cores)
    able = cores - 1 if step.on_gpu or cores < 2 else cores
    most = min(MAX_WORKERS, math.floor(able / max(1.0 - step.waiting_share, able / MAX_WORKERS, 1e-9)))
    times = {workers: step.with_workers(workers) for workers in range(1, most + 1)}
    best_ns = min(times.values(), default=step.now_ns)
    if best_ns > step.now_ns - RECEIVE_NS:
        return 0
    return next(workers for workers, time_ns in times.items() if time_ns <= ABOUT_AS_GOOD * best_ns)


def saved(step: Step, step_ns: float, workers: int) -> tuple[float, float]:
    """Return the step-time ratios, best and worst, if the model predicts ``step_ns`` with so many workers.

    While other programs use the cores, more workers may gain nothing.
    """
    best = min(1.0, step_ns / step.now_ns) if step.now_ns else 1.0
    if step.crowded:
        return best, 1.0
    # With all cores in use, other processes have none, and all share the memory bandwidth.
    shared = step.cores is None or workers * (1.0 - step.waiting_share) + step.threads >= step.cores
    kept = MIN_GAIN_WITH_SHARED_CORES if shared else MIN_GAIN_WITH_FREE_CORES
    return (best, 1.0 - kept * (1.0 - best))


def saved_by_workers(step: Step) -> tuple[float, float]:
    """Return the same for a loader without workers that gets as many as help, or none and cheaper batches."""
    workers = best_workers(step)
    if not workers:
        return (1.0 - step.fetch_ns / step.now_ns, 1.0)
    return saved(step, step.with_workers(workers), workers)


def simulated_step(fetches: Sequence[float], rests: Sequence[float], workers: int, prefetch: int) -> float:
    """Return the mean step of a loader with ordered delivery, from these times of making and using batches.

    Simulates torch: ``prefetch`` requests per worker at the start, assigned in turn, and a new request for each batch
    that was received (torch/utils/data/dataloader.py).
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
    steps = {size: simulated_step(fetches, rests, workers, size) for size in sizes}
    best = min(steps.values())
    return next((size, time) for size, time in steps.items() if time <= PREFETCH_AS_GOOD * best)
