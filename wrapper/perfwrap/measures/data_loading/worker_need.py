"""The step time with other workers, queues and threads, from a simulation of the loop on its cores.

``measured_step`` collects what the run measured, ``loader_simulation`` simulates it. A prediction is a range: the
simulation runs with the favourable and the unfavourable end of everything that the run cannot know.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import mean_step_ns, trains_on_gpu
from perfwrap.measures.data_loading.loader_inputs import (
    BatchTimes,
    SharedCores,
    find_batch_times,
    find_shared_cores,
)
from perfwrap.measures.data_loading.loader_simulation import (
    RECEIVE_NS_PER_BYTE,
    Cores,
    Load,
    Simulated,
    simulate,
)
from perfwrap.measures.data_loading.loaders import LoaderUse
from perfwrap.measures.data_loading.measured_load import batch_bytes, mean, measured_load
from perfwrap.measures.data_loading.worker_states import (
    cpu_starvation,
    running_and_used,
)
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.host.cores_taken import find_other_programs
from perfwrap.measures.host.processors import RUNNABLE_PER_CORE, WANTED_PER_CORE, find_processors
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer

MAX_WORKERS = 16
"""Maximum number of workers that is advised; beyond it something else is the limit."""

MAX_PREFETCH = 64
"""Maximum number of batches per worker that is advised, because of memory."""

DEFAULT_PREFETCH = 2
"""The default prefetch_factor of torch."""

ABOUT_AS_GOOD = 1.05
"""A number of workers is as good as a larger one if its steps take at most 5 % longer."""

MORE_HELP = 0.99
"""Workers are added as long as the last two made the step at least 1 % shorter."""

PREFETCH_AS_GOOD = 1.01
"""A queue is as good as a longer one if its steps take at most 1 % longer: it costs memory, but no cores."""

MIN_GAIN = 0.03
"""Minimum gain at the unfavourable end of the range for which workers are advised."""

MODEL_ERROR = 0.05
"""By how much a real loop with other workers differs from its simulation although all inputs are known: about the
median of scripts/accuracy/loader_simulation.py."""

MIN_WAIT_SHARE = 0.02
"""Waits for batches, and idle workers, from which a longer queue is considered, as a share of the loop."""

MIN_BATCHES = 20
"""Batches in detail that are needed to simulate with their own times; the same as steady steps for a verdict."""

MAX_STARVED_SHARE = 0.2
"""CPU starvation of the training thread (share of the loop without a core) from which it delays receiving batches, and
workers with less work make receiving faster."""

REPLY_NS = 5_000_000
"""The interval after which Python passes its lock to another thread (sys.getswitchinterval)."""

SHARED_NS = 400_000
"""What making a small batch in a worker takes beyond making it in the training thread, mostly for its shared memory:
0.4 ms in scripts/workloads/needless_workers_sensors.py."""

DISTURBED_NS = 600_000
"""What using a batch takes longer if the training thread sleeps until a worker has sent it, beyond receiving: wake-ups,
other cores, cold caches; 0.5 and 0.6 ms in the same scripts."""

IDLE_RECEIVE_NS = 1_400_000
"""Receiving a small ready batch from an idle worker: mostly waiting for its reply. In the same scripts."""

SLOW_RECEIVE = 2.0
"""How many times as long as on a free core receiving takes at most: with both cores busy, 0.9 ms."""


class Step(Struct, frozen=True):
    """A measured step: ``now_ns`` in total, ``rest_ns`` of it without the wait for its batch."""

    now_ns: float
    rest_ns: float
    fetch_ns: float
    """The time to make its batch in one process."""
    workers: int
    cores: float | None
    """The usable cores."""
    threads: int
    """Compute threads of the training."""
    on_gpu: bool
    crowded: bool
    """Whether other programs took cores from the training."""
    prefetch: int
    batches: float
    """Batches per step."""
    batch_ns: float
    """Measured time from one batch to the next, inside epochs."""
    load: Load
    """The work of a batch as if each task had a core of its own."""
    today: Load
    """The same as measured, if ``load`` is that of a changed program."""
    shared: SharedCores
    least_receive_ns: float = 0.0
    """Receiving a batch on a free core from an idle worker."""
    used_cores: float | None = None
    """The mean number of cores that the training process used."""

    @property
    def waiting_share(self) -> float:
        """The share of making a batch that needs no core: pauses, disks, networks."""
        return 1.0 - self.load.making_cpu

    @property
    def work_ns(self) -> float:
        """CPU time of a step without workers."""
        if self.used_cores is not None:
            return self.used_cores * self.now_ns
        making, using = (
            self.load.making_cpu * mean(self.load.making),
            self.load.width * (mean(self.load.using) + (self.load.receive_ns if self.workers else 0.0)),
        )
        return self.batches * (making + using)

    def with_workers(self, workers: int) -> float:
        """Return the step time with so many workers: the middle of the range."""
        return sum(self.range_with(workers)) / 2

    def range_with(self, workers: int, *, waits_overlap: bool = False) -> tuple[float, float]:
        """Return the step time with so many workers, least and most.

        At the unfavourable end, what workers wait for serves no more of them at once than today, unless
        ``waits_overlap``.
        """
        queue = self.queue_with(workers)
        scenarios = _scenarios(self, workers, waits_overlap=waits_overlap)
        ratios = [ratio for scenario in scenarios for ratio in scenario.ratios(self, workers, queue)]
        inside = min(self.now_ns, self.batches * self.batch_ns)
        error = 0.0 if workers == self.workers else MODEL_ERROR
        ends = min(ratios) * (1.0 - error), max(ratios) * (1.0 + error)
        least, most = (max(0.0, self.now_ns - inside * (1.0 - ratio)) for ratio in ends)
        return least, most

    def queue_with(self, workers: int) -> int:
        """Return the prefetch_factor for so many workers: torch's default, or more if that is too short for bursts."""
        if self.workers or not workers:
            return self.prefetch
        threads = self.threads_with(workers)
        return max(scenario.queue(self.load, workers, threads) for scenario in _scenarios(self, workers))

    def threads_with(self, workers: int) -> int:
        """Return how many compute threads of the training leave the workers the cores that they need."""
        if self.on_gpu or self.shared.cores is None:
            return self.threads
        left = self.shared.cores - workers * self.load.making_cpu
        return min(self.threads, max(1, math.floor(left + 1e-6)))

    def fits(self, workers: int) -> bool:
        """Return whether so many workers leave the report without complaints about too many threads."""
        if self.cores is None:
            return True
        ranks = self.shared.ranks
        queue, threads = self.queue_with(workers), 0 if self.workers else self.threads_with(workers)
        for scenario in _scenarios(self, workers):
            found = scenario.simulated(self.load, workers, queue, threads)
            wanted = ranks * (threads or self.threads) + math.ceil(ranks * found.workers_running)
            runnable = ranks * found.running
            if wanted > WANTED_PER_CORE * self.cores and runnable >= RUNNABLE_PER_CORE * self.cores:
                return False
        return True

    def evened(self) -> Step:
        """Return the step if making each batch took the mean time of all."""
        return replace(
            self, load=replace(self.load, making=(mean(self.load.making),) * len(self.load.making))
        )

    def cheaper(self, removed_share: float, cpu: bool = True) -> Step:
        """Return the step if making a batch took less by this share, and less CPU time if ``cpu``."""
        made = self.load.making_cpu
        kept = 1.0 - removed_share
        left = max(0.0, made - removed_share) if cpu else min(made, kept)
        least = min(self.load.receive_ns, self.least_receive_ns)
        load = replace(
            self.load,
            making=tuple(kept * each for each in self.load.making),
            making_cpu=left / kept if kept > 0.0 else 1.0,
            # A worker that makes a batch holds its interpreter lock (GIL), and the training waits for it.
            receive_ns=least + kept * (self.load.receive_ns - least),
        )
        return replace(self, fetch_ns=kept * self.fetch_ns, load=load)


class Scenario(Struct, frozen=True):
    """One end of everything that a run cannot know."""

    cores: Cores
    speeds: tuple[float, float]
    """How fast cores ran while batches were made and used today, because of their neighbours."""
    receive: float
    """Times the CPU time of receiving and sending."""
    reply_ns: float
    parallel_waits: int | None
    scaling: float
    """1 if the work of threads that are removed remains and takes longer on fewer cores; 0 if it was only waiting for
    each other."""
    alone: tuple[float, float] = (0.0, 0.0)
    """Nanoseconds by which making and using a batch are shorter without workers."""

    def simulated(self, load: Load, workers: int, prefetch: int, threads: int = 0) -> Simulated:
        """Return the loop with so many workers; ``threads`` limits those of the training."""
        width, (making, using) = load.width, self.speeds
        shorter = (0.0, 0.0) if workers else self.alone
        if 0 < threads < width:
            using *= (width / threads) ** self.scaling
            width = float(threads)
        changed = replace(
            load,
            making=tuple(_less(making * each, shorter[0]) for each in load.making),
            using=tuple(_less(using * each, shorter[1]) for each in load.using),
            width=width,
            receive_ns=self.receive * load.receive_ns,
            send_ns=self.receive * load.send_ns,
            reply_ns=self.reply_ns,
            parallel_waits=self.parallel_waits,
        )
        return simulate(changed, self.cores, workers, prefetch)

    def queue(self, load: Load, workers: int, threads: int) -> int:
        """Return torch's default prefetch_factor, or a larger one if that removes half of the waits."""
        now = self.simulated(load, workers, DEFAULT_PREFETCH, threads)
        if now.wait_ns < MIN_WAIT_SHARE * now.batch_ns or now.workers_idle < MIN_WAIT_SHARE:
            return DEFAULT_PREFETCH
        best = best_queue(
            lambda size: self.simulated(load, workers, size, threads).batch_ns, DEFAULT_PREFETCH
        )
        gained = now.batch_ns - self.simulated(load, workers, best, threads).batch_ns
        return best if gained >= 0.5 * now.wait_ns else DEFAULT_PREFETCH

    def ratios(self, step: Step, workers: int, prefetch: int) -> Iterator[float]:
        """Return the step time inside epochs over today's: for the whole loop, and for its parts."""
        threads = 0 if step.workers else step.threads_with(workers)
        for today, changed in zip(_parts(step.today), _parts(step.load), strict=True):
            now = self.simulated(today, step.workers, step.prefetch).batch_ns
            then = self.simulated(changed, workers, prefetch, threads).batch_ns
            yield then / now if now else 1.0
            # What the simulation of today's loop is off by, that of another may be off by.
            if step.workers and today is step.today and step.batch_ns:
                yield then / step.batch_ns


def _scenarios(step: Step, workers: int, *, waits_overlap: bool = False) -> tuple[Scenario, Scenario]:
    """Return the favourable and the unfavourable end."""
    running = simulate(step.today, Cores(None), step.workers, step.prefetch).running
    at_once = max(1, step.workers) if workers > step.workers and not waits_overlap else None
    fair, kept = step.shared.fair(running), step.shared.taken_away()
    tasks = (running, running) if step.workers else (step.today.making_cpu, step.today.width)
    alone = (SHARED_NS, DISTURBED_NS) if step.workers else (0, 0)
    # A loader with workers has measured how long receiving takes.
    slow = 1.0 if step.workers else SLOW_RECEIVE
    return (
        Scenario(fair, _speeds(fair, tasks), 1.0, 0.0, None, 0.0, alone),
        Scenario(kept, _speeds(kept, tasks), slow, REPLY_NS, at_once, 1.0),
    )


def _less(time_ns: float, shorter_ns: float) -> float:
    """Return a time that is shorter by so much, but at least a fifth of it."""
    return max(0.2 * time_ns, time_ns - shorter_ns)


def _speeds(cores: Cores, tasks: tuple[float, float]) -> tuple[float, float]:
    """Return how fast cores run with so many tasks while batches are made, and while they are used."""
    return cores.shared_speed(tasks[0]), cores.shared_speed(tasks[1])


def _parts(load: Load) -> list[Load]:
    """Return the load with the times of the whole loop, and of each part of it."""
    halves = zip(sections(load.making), sections(load.using), strict=False)
    return [load, *(replace(load, making=making, using=using) for making, using in halves)]


def sections(times: Sequence[float]) -> tuple[Sequence[float], ...]:
    """Return the halves of the times; nothing if they are too few: what differs between them may differ again."""
    half = len(times) // 2
    return (times[:half], times[half:]) if half >= MIN_BATCHES else ()


def measured_step(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> Step | None:
    """Return the measured step of a trainer and one loader; None if the time to make a batch is unknown."""
    now_ns = mean_step_ns(evidence, trainer)
    if not now_ns or not loader.batches or (loader.workers and loader.making is None):
        return None
    # Receiving batches that are ready stays as it is, unless the workers take the cores that it needs.
    starved = evidence.get(cpu_starvation, trainer)
    rest_ns = (1.0 - (loader.share if starved >= MAX_STARVED_SHARE else loader.late_share)) * now_ns
    per_step = loader.batches / max(1, evidence.get(find_steps, trainer).steady)
    fetch_ns = (loader.fetch_ns or 0.0) * per_step if loader.workers else loader.share * now_ns
    if not fetch_ns:
        return None
    processors = evidence.get(find_processors, trainer)
    on_gpu = trains_on_gpu(evidence, trainer)
    times = evidence.get(find_batch_times, trainer, loader)
    if min(len(times.making), len(times.using)) < MIN_BATCHES:
        times = BatchTimes((fetch_ns / per_step,), (rest_ns / per_step,), (loader.share * now_ns / per_step,))
    threads = 1 if on_gpu else processors.threads_per_trainer or 1
    load = measured_load(evidence, trainer, loader, times, threads, on_gpu)
    return Step(
        now_ns=now_ns,
        rest_ns=rest_ns,
        fetch_ns=fetch_ns,
        workers=loader.workers or 0,
        cores=processors.usable,
        threads=threads,
        on_gpu=on_gpu,
        crowded=evidence.get(find_other_programs, trainer) is not None,
        prefetch=loader.prefetch_factor or DEFAULT_PREFETCH,
        batches=per_step,
        batch_ns=mean(times.using) + mean(times.waits),
        load=load,
        today=load,
        shared=evidence.get(find_shared_cores, trainer, loader),
        least_receive_ns=IDLE_RECEIVE_NS + batch_bytes(loader) * RECEIVE_NS_PER_BYTE,
        used_cores=running_and_used(evidence.timeline, trainer, evidence.get(find_account, trainer))[1],
    )


def best_workers(step: Step) -> int:
    """Return the smallest number of workers that is about as good as any at both ends of the range.

    0 if they do not certainly help. Workers that mostly wait may be more than the cores.
    """
    times: list[tuple[float, float]] = []
    for workers in range(1, MAX_WORKERS + 1):
        more_help = len(times) < 3 or sum(times[-1]) < MORE_HELP * sum(times[-3])
        if not step.fits(workers) or not more_help:
            break
        times.append(step.range_with(workers, waits_overlap=True))
    found = max((_enough(end) for end in zip(*times, strict=True)), default=0)
    return found if found and _is_certain(step, found) else 0


def _enough(times: Sequence[float]) -> int:
    """Return the smallest number of workers that is about as good as any; the first step time is that with one."""
    return next(number for number, time in enumerate(times, 1) if time <= ABOUT_AS_GOOD * min(times))


def _is_certain(step: Step, workers: int) -> bool:
    """Return whether the whole range is a gain; of workers that wait, the favourable end."""
    best, worst = saved(step, workers)
    return (best if _is_waiting(step) else worst) <= 1.0 - MIN_GAIN


def _is_waiting(step: Step) -> bool:
    """Return whether workers mostly wait: then it is unknown whether more of them may wait at once than today."""
    return step.workers > 0 and step.waiting_share >= 0.5


def saved(step: Step, workers: int) -> tuple[float, float]:
    """Return the step-time ratios, best and worst, with so many workers; at most 1."""
    if not step.now_ns:
        return (1.0, 1.0)
    least, most = step.range_with(workers)
    return min(1.0, least / step.now_ns), min(1.0, most / step.now_ns)


def saved_by_workers(step: Step) -> tuple[float, float]:
    """Return the same for a loader without workers that gets as many as help, or none and cheaper batches."""
    workers = best_workers(step)
    return saved(step, workers) if workers else (1.0 - step.fetch_ns / step.now_ns, 1.0)


_POWERS = tuple(1 << power for power in range(1, MAX_PREFETCH.bit_length()))


def best_queue(step_ns: Callable[[int], float], today: int) -> int:
    """Return the smallest prefetch_factor, from today's on, that is about as good as any."""
    times = {size: step_ns(size) for size in sorted({today, *(size for size in _POWERS if size > today)})}
    best = min(times.values())
    return next(size for size, time in times.items() if time <= PREFETCH_AS_GOOD * best)
