"""The workers use several compute threads each, more than the cores can run.

What it finds
    DataLoader workers with more than one compute thread each, if their threads and those of the training are more than
    1.5 times the usable cores (CPU affinity and cgroup quota), and more tasks are runnable than there are cores.

Why it costs
    torch gives each worker one thread, because the workers themselves run in parallel. With more, each operation of
    each worker waits until all its threads have had a core, and threads that spin while they wait take cores from
    others, including the training. More single-threaded workers than cores only share the cores, which costs memory but
    little time.

How the gain is estimated
    Estimated: with only as many runnable tasks as cores, waits for batches and the model's phases would no longer share
    the cores, so at best they shrink by cores / runnable tasks. The cost of spinning and the CPU use of other programs
    are unknown, so the lower bound is no gain. If other programs took cores from the training, the severity is at most
    minor.

How to fix
    Leave one thread per worker: remove torch.set_num_threads (and OMP_NUM_THREADS for other libraries) from the dataset
    and from worker_init_fn. Choose num_workers so that workers and training fit the cores.

When it is wrong
    When the workers' other threads wait for a network or a disk instead of computing.
"""

from __future__ import annotations

import math

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import COMPUTE_PARTS, trains_on_gpu
from perfwrap.measures.data_loading.loaders import LoaderUse, find_loaders
from perfwrap.measures.data_loading.worker_states import find_worker_states
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.host.cores_taken import find_other_programs
from perfwrap.measures.host.processors import (
    RUNNABLE_PER_CORE,
    WANTED_PER_CORE,
    Processors,
    find_processors,
)
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.data_loading import _batch_time as making
from perfwrap.rules.model import (
    MIN_REPORTED_SHARE,
    SHARE,
    Answer,
    Clear,
    Finding,
    NotChecked,
    Option,
    locate,
    named,
)

NEEDS = ("data", "host", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    other_threads: int = 2
    """Threads of a worker that do not compute: one sends its batches, one belongs to torch (observed with torch
    2.13)."""
    wanted_per_core: float = WANTED_PER_CORE
    runnable_per_core: float = RUNNABLE_PER_CORE


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for workers with more threads than the cores can run."""
    loaders = [loader for loader in evidence.get(find_loaders, trainer) if loader.training and loader.workers]
    if not loaders:
        return Clear("No DataLoader with workers feeds the training.")
    known = [(loader, _threads(evidence, trainer, loader, limits)) for loader in loaders]
    counted = [(loader, threads) for loader, threads in known if threads is not None]
    cores = evidence.get(find_processors, trainer)
    if not counted or cores.usable is None or cores.own_runnable is None:
        return NotChecked("Thread counts of the workers, usable cores or runnable tasks were not recorded.")
    several = [(loader, threads) for loader, threads in counted if threads > 1]
    if not several:
        return Clear("Each worker uses a single compute thread.")
    own = cores.threads_per_trainer or 1
    wanted = own + sum(threads * (loader.workers or 0) for loader, threads in several)
    pressure = min(cores.own_runnable, wanted) / cores.usable
    if wanted <= limits.wanted_per_core * cores.usable or pressure < limits.runnable_per_core:
        return Clear(
            f"{units.counted(wanted, 'compute thread')} did not need more than the cores at the same time."
        )
    loader, threads = several[0]
    finding = _finding(evidence, trainer, loader, threads, wanted, cores, pressure)
    if finding.share < limits.min_reported_share:
        return Clear(f"The threads of the workers cost at most {units.share(finding.share)} of the loop.")
    return [finding]


def _threads(evidence: Evidence, trainer: Trainer, loader: LoaderUse, limits: Limits) -> int | None:
    """Return the maximum number of compute threads of one worker; None if not recorded."""
    seen = [
        state.threads
        for state in evidence.get(find_worker_states, trainer, loader)
        if state.threads is not None
    ]
    return max(1, round(max(seen)) - limits.other_threads) if seen else None


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
    shares = evidence.get(find_account, trainer).shares
    parts = [] if trains_on_gpu(evidence, trainer) else list(COMPUTE_PARTS)
    share = (loader.share + sum(shares[part] for part in parts)) * (1.0 - 1.0 / pressure)
    where = named("the DataLoader", loader.created)
    usable = cores.usable or 1.0
    fitting = max(1, min(loader.workers or 1, math.floor(usable)))
    words = [
        f"{units.counted(loader.workers or 0, 'worker')} with {units.counted(threads, 'compute thread')} each and "
        f"{units.counted(cores.threads_per_trainer or 1, 'thread')} of the training share "
        f"{units.number(usable)} usable cores.",
        f"{units.number(cores.runnable or 0.0)} tasks were runnable on average.",
        *making.split(loader),
    ]
    return Finding(
        title=f"{units.counted(wanted, 'compute thread')} of the training and the workers of {where} share "
        f"{units.number(usable)} cores, which costs up to {SHARE} of the training loop.",
        share=share,
        evidence=tuple(words),
        options=(
            Option(
                "Leave one thread per worker: no torch.set_num_threads in the dataset or worker_init_fn.",
                (1.0 - share, 1.0),
                f"{units.counted(wanted, 'thread')} on {units.number(usable)} cores",
                "threads=1",
            ),
            *_fewer(loader, fitting, where, share),
        ),
        verdict="data-bound" if loader.share >= sum(shares[part] for part in parts) else "throttled",
        location=locate(loader.created),
        max_severity="critical" if evidence.get(find_other_programs, trainer) is None else "minor",
        confidence="inferred",
        claims=making.waits(loader) | pl.col("part").is_in(parts),
    )


def _fewer(loader: LoaderUse, fitting: int, where: str, share: float) -> tuple[Option, ...]:
    """Return the option to start fewer workers, if there are more of them than cores."""
    if fitting >= (loader.workers or 0):
        return ()
    edit = f"Pass num_workers={fitting} instead of {loader.workers} to {where}."
    return (Option(edit, (1.0 - share, 1.0), experiment=f"workers={fitting}"),)
