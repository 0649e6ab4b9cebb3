"""The workers compute with several threads each, and all of them together do not fit the cores.

What it finds
    DataLoader workers with more than one compute thread each, whose threads are together with those of the training
    more than half as many again as the cores that the run may use (affinity and cgroup quota), while the tasks that
    want to run outnumber the cores.

Why it costs
    torch gives each worker one thread because the workers are the parallel part. With more, each operation of each
    worker waits until all of its threads have had a core, and threads that spin while they wait take the core that
    others need: the training's own operations, too. More single-threaded workers than cores only take turns, which
    costs memory and little time.

How the saving is worked out
    Inferred: with as many runnable tasks as cores, waiting for batches and the model's own phases would have the
    cores that they now share, so at best they shrink by cores / runnable tasks. What spinning costs beyond is not
    known, and neither is what other programs take: at worst nothing is gained.

How to fix
    Leave each worker its one thread: remove torch.set_num_threads (and OMP_NUM_THREADS for other libraries) from the
    data set and from worker_init_fn. Pass num_workers so that workers and training fit the cores.

When it is wrong
    When the workers' other threads wait for a network or a disk instead of computing.
"""

from __future__ import annotations

import math

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.loop import COMPUTE_PARTS, trains_on_gpu
from perfwrap.measures.processors import Processors
from perfwrap.measures.trainers import Trainer
from perfwrap.rules import making
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, NotChecked, locate, named

NEEDS = ("data", "host", "steady_steps")

OTHER_THREADS = 2
"""Threads of a worker that do not compute: one sends its batches, one is torch's own (seen with torch 2.13)."""

WANTED_PER_CORE = 1.5
"""Compute threads per usable core from which they count as too many, as in thread_oversubscription."""

RUNNABLE_PER_CORE = 1.25
"""Runnable tasks per usable core from which the threads are known to be in each other's way."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for workers whose threads do not fit the cores."""
    loaders = [loader for loader in evidence.loaders(trainer) if loader.training and loader.workers]
    if not loaders:
        return Clear("No DataLoader with workers fed the training.")
    known = [(loader, _threads(evidence, trainer, loader)) for loader in loaders]
    counted = [(loader, threads) for loader, threads in known if threads is not None]
    cores = evidence.processors(trainer)
    if not counted or cores.usable is None or cores.own_runnable is None:
        return NotChecked(
            "The threads of the workers, the usable cores or the tasks that want them were not seen."
        )
    several = [(loader, threads) for loader, threads in counted if threads > 1]
    if not several:
        return Clear("Each worker computes with a single thread.")
    own = cores.threads_per_trainer or 1
    wanted = own + sum(threads * (loader.workers or 0) for loader, threads in several)
    pressure = min(cores.own_runnable, wanted) / cores.usable
    if wanted <= WANTED_PER_CORE * cores.usable or pressure < RUNNABLE_PER_CORE:
        return Clear(f"{units.counted(wanted, 'compute thread')} did not want to run at the same time.")
    loader, threads = several[0]
    finding = _finding(evidence, trainer, loader, threads, wanted, cores, pressure)
    if finding.share < QUIET_SHARE:
        return Clear(f"The threads of the workers cost {units.share(finding.share)} of the loop at most.")
    return [finding]


def _threads(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> int | None:
    """Return the compute threads of one worker, the most that were seen; None where nobody counted."""
    seen = [state.threads for state in evidence.worker_states(trainer, loader) if state.threads is not None]
    return max(1, round(max(seen)) - OTHER_THREADS) if seen else None


def _finding(
    evidence: Evidence,
    trainer: Trainer,
    loader: LoaderUse,
    threads: int,
    wanted: int,
    cores: Processors,
    pressure: float,
) -> Finding:
    """Return the finding about one loader."""
    shares = evidence.account(trainer).shares
    parts = [] if trains_on_gpu(evidence, trainer) else list(COMPUTE_PARTS)
    share = (loader.share + sum(shares[part] for part in parts)) * (1.0 - 1.0 / pressure)
    where = named("the DataLoader", loader.created)
    usable = cores.usable or 1.0
    fitting = max(1, min(loader.workers or 1, math.floor(usable)))
    words = [
        f"{units.counted(loader.workers or 0, 'worker')} with {units.counted(threads, 'compute thread')} each and "
        f"{units.counted(cores.threads_per_trainer or 1, 'thread')} of the training share "
        f"{units.number(usable)} usable cores.",
        f"{units.number(cores.runnable or 0.0)} tasks wanted to run on average.",
        *making.split(loader),
    ]
    fewer = f" and pass num_workers={fitting}" if fitting < (loader.workers or 0) else ""
    return Finding(
        title=f"{units.counted(wanted, 'compute thread')} of the workers of {where} and of the training share "
        f"{units.number(usable)} cores, which costs up to {SHARE} of the training loop.",
        share=share,
        saving=(1.0 - share, 1.0),
        evidence=tuple(words),
        advice=f"Leave each worker its one thread (no torch.set_num_threads in the data set or worker_init_fn){fewer}.",
        verdict="data-bound" if loader.share >= sum(shares[part] for part in parts) else "throttled",
        location=locate(loader.created),
        experiment="threads=1",
        confidence="inferred",
        claims=making.waits(loader) | pl.col("part").is_in(parts),
    )
