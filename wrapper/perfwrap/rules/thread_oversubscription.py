"""More compute threads want to run than there are cores.

What it finds
    Compute threads of all trainers and of their DataLoader workers that are together more than half as many
    again as the cores that the run may use (affinity and cgroup quota), while the tasks that want to run
    outnumber the cores.

Why it costs
    The threads of one operation wait for each other at its end. When they do not all have a core, each
    operation waits for a thread that the kernel has put aside; OpenMP threads that spin while they wait take
    away the core that the awaited thread needs. Two processes with two threads each on two cores can be many
    times slower than with one thread each.

How the saving is worked out
    Inferred: with as many runnable tasks as cores the compute phases would have the cores that they now
    share, so at best they shrink by cores / runnable tasks. What spinning costs beyond is not known, and
    neither is whether fewer threads would be faster: at worst nothing is gained. Where other programs want the
    cores as well, or nobody knows, it is never called worse than minor.

How to fix
    Give each process cores / processes threads: OMP_NUM_THREADS=N in the environment (torchrun sets 1) or
    torch.set_num_threads(N). In a container with a CPU quota always set it: torch counts the machine's
    cores, not the quota. Inside DataLoader workers torch uses one thread unless the program changes that.

When it is wrong
    When the threads wait for something else most of the time, a disk or a network.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import COMPUTE_PARTS, trains_on_gpu
from perfwrap.measures.processors import Processors
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("host", "steady_steps")

WANTED_PER_CORE = 1.5
"""Compute threads per usable core from which they count as too many; one worker beside a trainer is no
problem."""

RUNNABLE_PER_CORE = 1.25
"""Runnable tasks per usable core from which the threads are known to be in each other's way."""

ALONE = 0.9
"""The run's own part of the runnable tasks from which nobody else is to blame."""

THROTTLED_SHARE = 0.05
"""Share of the time held back by the cgroup's quota that says the same."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Compare the threads that want to run with the cores that there are."""
    cores = evidence.processors(trainer)
    if cores.usable is None or cores.wanted_threads is None:
        return NotChecked("The number of usable cores or of compute threads is not known.")
    threads = (
        f"{units.counted(cores.wanted_threads, 'compute thread')} for {units.number(cores.usable)} usable "
        "cores"
    )
    if cores.wanted_threads <= WANTED_PER_CORE * cores.usable:
        return Clear(f"{threads}.")
    pressure = _pressure(cores)
    if pressure is None:
        return NotChecked(
            "Whether the threads were in each other's way is not known: runnable tasks were not sampled."
        )
    if pressure <= 1.0:
        return Clear(f"{threads}, but they did not want to run at the same time.")
    # On a GPU the host's threads slow down what feeds it, not the model's own work.
    parts = ("python", "data") if trains_on_gpu(evidence, trainer) else COMPUTE_PARTS
    shares = evidence.account(trainer).shares
    share = sum(shares[part] for part in parts) * (1.0 - 1.0 / pressure)
    if share < QUIET_SHARE:
        return Clear(f"{threads}, which costs {units.share(share)} of the loop at most.")
    return [
        Finding(
            title=f"{threads}: they take turns, which costs up to {SHARE} of the training loop.",
            share=share,
            saving=(1.0 - share, 1.0),
            evidence=_words(cores),
            advice=_advice(cores),
            verdict="throttled",
            experiment=f"threads={_good(cores)}",
            at_most="critical" if _is_alone(cores) else "minor",
            confidence="inferred",
            claims=pl.col("part").is_in(list(parts)),
        )
    ]


def _pressure(cores: Processors) -> float | None:
    """Return how many times too many tasks wanted the cores: 1 for enough cores, None for unknown."""
    usable = cores.usable or 1.0
    if cores.own_runnable is not None and cores.own_runnable >= RUNNABLE_PER_CORE * usable:
        # Where the run's own part is not known: never more than it can have added.
        return min(cores.own_runnable, float(cores.wanted_threads or 0)) / usable
    if cores.throttled_share is not None and cores.throttled_share >= THROTTLED_SHARE:
        return 1.0 / (1.0 - min(cores.throttled_share, 0.9))
    return None if cores.runnable is None else 1.0


def _is_alone(cores: Processors) -> bool:
    """Say whether the tasks that want the cores are known to be the run's own."""
    return cores.tree_busy is not None and (cores.own_runnable or 0.0) >= ALONE * (cores.runnable or 0.0)


def _words(cores: Processors) -> tuple[str, ...]:
    """Return what was seen."""
    processes = units.counted(cores.trainers, "training process", "training processes")
    threads = units.counted(cores.threads_per_trainer or 0, "thread")
    each = " each" if cores.trainers > 1 else ""
    words = [f"{processes} with {threads}{each}{_and_workers(cores)}."]
    if cores.runnable is not None:
        own = cores.own_runnable or 0.0
        others = f", about {units.number(own)} of them this run's own" if own < cores.runnable else ""
        words.append(f"{units.number(cores.runnable)} tasks wanted to run on average{others}.")
    if cores.throttled_share:
        words.append(f"The CPU quota held the run back {units.share(cores.throttled_share)} of the time.")
    if cores.involuntary_switches_per_s is not None:
        words.append(
            f"The kernel took a core away {units.rate(cores.involuntary_switches_per_s, 'times', 2)}."
        )
    return tuple(words)


def _and_workers(cores: Processors) -> str:
    """Return the DataLoader workers, when there are any."""
    return f" and {units.counted(cores.workers, 'DataLoader worker')}" if cores.workers else ""


def _good(cores: Processors) -> int:
    """Return how many threads each training process should have."""
    return max(1, int((cores.usable or 1.0) - cores.workers) // max(1, cores.trainers))


def _advice(cores: Processors) -> str:
    """Return what to change."""
    number = _good(cores)
    processes = units.counted(cores.trainers, "training process", "training processes")
    return (
        f"Set OMP_NUM_THREADS={number} in the environment, or call torch.set_num_threads({number}), so that "
        f"{processes}{_and_workers(cores)} fit the {units.number(cores.usable or 1.0)} usable cores."
    )
