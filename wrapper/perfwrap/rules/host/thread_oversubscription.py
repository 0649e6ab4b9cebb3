"""More compute threads are runnable than there are cores.

What it finds
    Compute threads of all training processes and of their DataLoader workers that are together more than 1.5 times the
    usable cores (CPU affinity and cgroup quota), while more tasks are runnable than there are cores.

Why it costs
    The threads of one operation wait for each other at its end. If they do not all have a core, each operation waits
    for a thread that the kernel has paused; OpenMP threads that spin while they wait use the core that this thread
    needs. Two processes with two threads each on two cores can be many times slower than with one thread each.

How the gain is estimated
    Estimated: with only as many runnable tasks as cores, the compute phases would no longer share the cores, so at best
    they shrink by cores / runnable tasks. The cost of spinning is unknown, and so is whether fewer threads are faster:
    the lower bound is no gain. If other programs need the cores too, or this is unknown, the severity is at most minor.

How to fix
    Use cores / processes threads per process: OMP_NUM_THREADS=N in the environment (torchrun sets 1) or
    torch.set_num_threads(N). In a container with a CPU quota always set it: torch counts the machine's cores, not the
    quota. Inside DataLoader workers torch uses one thread unless the program changes that.

When it is wrong
    When the threads mostly wait for something else, such as a disk or a network.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_figures import COMPUTE_PARTS, trains_on_gpu
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.host.processors import (
    RUNNABLE_PER_CORE,
    WANTED_PER_CORE,
    Processors,
    find_processors,
)
from perfwrap.measures.loop.program_calls import find_only_call
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import (
    MIN_REPORTED_SHARE,
    SHARE,
    Answer,
    Clear,
    Finding,
    NotChecked,
    Option,
    locate,
    place,
)

NEEDS = ("host", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    wanted_per_core: float = WANTED_PER_CORE
    runnable_per_core: float = RUNNABLE_PER_CORE
    own_share: float = 0.9
    """The run's own share of the runnable tasks from which no other program is the cause."""
    min_throttled_share: float = 0.05
    """Share of the time withheld by the cgroup quota that shows the same."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Compare the runnable threads with the cores."""
    cores = evidence.get(find_processors, trainer)
    if cores.usable is None or cores.wanted_threads is None:
        return NotChecked("The number of usable cores or of compute threads is unknown.")
    threads = (
        f"{units.counted(cores.wanted_threads, 'compute thread')} for {units.number(cores.usable)} usable "
        "cores"
    )
    if cores.wanted_threads <= limits.wanted_per_core * cores.usable:
        return Clear(f"{threads}.")
    pressure = _pressure(cores, limits)
    if pressure is None:
        return NotChecked(
            "Runnable tasks were not recorded, so it is unknown whether the threads compete for cores."
        )
    if pressure <= 1.0:
        return Clear(f"{threads}, but they are not runnable at the same time.")
    # On a GPU the host's threads slow down what feeds the GPU, not the model itself.
    parts = ("python", "data") if trains_on_gpu(evidence, trainer) else COMPUTE_PARTS
    shares = evidence.get(find_account, trainer).shares
    share = sum(shares[part] for part in parts) * (1.0 - 1.0 / pressure)
    if share < limits.min_reported_share:
        return Clear(f"{threads}, which costs at most {units.share(share)} of the loop.")
    setting = evidence.get(find_only_call, "set_num_threads")
    return [
        Finding(
            title=f"{threads}: they compete for the cores, which costs up to {SHARE} of the training loop.",
            share=share,
            evidence=_words(cores),
            options=_options(cores, share, threads, setting),
            verdict="throttled",
            location=locate(setting),
            max_severity="critical" if _is_alone(cores, limits) else "minor",
            confidence="inferred",
            claims=pl.col("part").is_in(list(parts)),
        )
    ]


def _pressure(cores: Processors, limits: Limits) -> float | None:
    """Return runnable tasks per core: 1 for enough cores, None for unknown."""
    usable = cores.usable or 1.0
    if cores.own_runnable is not None and cores.own_runnable >= limits.runnable_per_core * usable:
        # If the run's own part is unknown: at most its number of threads.
        return min(cores.own_runnable, float(cores.wanted_threads or 0)) / usable
    if cores.throttled_share is not None and cores.throttled_share >= limits.min_throttled_share:
        return 1.0 / (1.0 - min(cores.throttled_share, 0.9))
    return None if cores.runnable is None else 1.0


def _is_alone(cores: Processors, limits: Limits) -> bool:
    """Return whether the runnable tasks are known to be the run's own."""
    return cores.tree_busy is not None and (cores.own_runnable or 0.0) >= limits.own_share * (
        cores.runnable or 0.0
    )


def _words(cores: Processors) -> tuple[str, ...]:
    """Return the measured figures."""
    processes = units.counted(cores.trainers, "training process", "training processes")
    threads = units.counted(cores.threads_per_trainer or 0, "thread")
    each = " each" if cores.trainers > 1 else ""
    words = [f"{processes} with {threads}{each}{_and_workers(cores)}."]
    if cores.runnable is not None:
        own = cores.own_runnable or 0.0
        others = f", about {units.number(own)} of them from this run" if own < cores.runnable else ""
        words.append(f"{units.number(cores.runnable)} tasks were runnable on average{others}.")
    if cores.throttled_share:
        words.append(f"The CPU quota stopped the run {units.share(cores.throttled_share)} of the time.")
    if cores.involuntary_switches_per_s is not None:
        words.append(
            f"The kernel preempted the training thread {units.rate(cores.involuntary_switches_per_s, 'times', 2)}."
        )
    return tuple(words)


def _and_workers(cores: Processors) -> str:
    """Return the DataLoader workers, if there are any."""
    return f" and {units.counted(cores.workers, 'DataLoader worker')}" if cores.workers else ""


def _fitting_threads(cores: Processors) -> int:
    """Return how many threads each training process should have."""
    return max(1, int((cores.usable or 1.0) - cores.workers) // max(1, cores.trainers))


def _parts(cores: Processors) -> str:
    """Return e.g. ``2 training processes and 4 DataLoader workers``."""
    processes = units.counted(cores.trainers, "training process", "training processes")
    return f"{processes}{_and_workers(cores)}"


def _options(cores: Processors, share: float, threads: str, setting: Line | None) -> tuple[Option, ...]:
    """Return the ways to run fewer threads; fewer in each process only if it has several.

    ``setting`` is the line that calls ``torch.set_num_threads``, which has priority over the variable.
    """
    number, usable, saving = _fitting_threads(cores), cores.usable or 1.0, (1.0 - share, 1.0)
    options = []
    if cores.threads_per_trainer is None or number < cores.threads_per_trainer:
        options.append(
            Option(
                f"Set OMP_NUM_THREADS={number}, and torch.set_num_threads at {place(setting, '')}, which has priority "
                f"where it is called, to {number}."
                if setting
                else f"Set OMP_NUM_THREADS={number} or call torch.set_num_threads({number}).",
                saving,
                threads,
                f"threads={number}",
                f"Then {_parts(cores)} fit the {units.number(usable)} usable cores.",
            )
        )
    if cores.workers >= usable:
        edit = f"Start fewer DataLoader workers: {units.count(cores.workers)} share {units.number(usable)} cores."
        options.append(Option(edit, saving))
    if cores.trainers > 1 and cores.trainers >= usable:
        edit = f"Start fewer processes: {_parts(cores)} share {units.number(usable)} cores."
        options.append(Option(edit, saving, threads))
    return tuple(options) or (
        Option(f"Let the run use more cores than {units.number(usable)}.", saving, threads),
    )
