"""The run may use only some of the machine's processors, and uses them up.

What it finds
    A run that is bound to half of the machine's cores or fewer (taskset, a batch system, a container's cpuset), that
    keeps these busy to 90 % or more and wants to run more threads and workers than there are, while others are idle.

Why it costs
    Threads and workers take turns on the cores that they may use; the idle ones beside them are out of bounds.

How the saving is worked out
    Inferred: with a core for each wanted thread, but no more than the machine has idle, the host's part of the loop
    would shrink by that ratio at best. At worst nothing is gained.

How to fix
    Ask for more cores: --cpus-per-task of Slurm, --bind-to none of mpirun, the container's cpuset, the list of taskset.
    Or start fewer workers.

When it is wrong
    When the other cores belong to other jobs that are idle only now.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import COMPUTE_PARTS, mean_step_ns, trains_on_gpu
from perfwrap.measures.processors import Processors
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import saving
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("host", "steady_steps")

FEW_CORES = 0.5
"""Share of the machine's cores up to which the limit is told; some batch systems keep a few cores for themselves."""

USED_UP = 0.9
"""Share of its cores that the run keeps busy from which they are too few: what thread_oversubscription leaves over."""

HOST_PARTS = ("python", "data")
"""What the host's processors do for a model that runs on a GPU."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Compare the cores that the run may use with those that there are."""
    cores = evidence.processors(trainer)
    allowed = cores.allowed
    if allowed is None or cores.online is None:
        return NotChecked("Which cores the run may use is not known.")
    if allowed > FEW_CORES * cores.online:
        return Clear(f"The run may use {allowed} of {units.counted(cores.online, 'core')}.")
    if cores.tree_busy is None or cores.wanted_threads is None or cores.busy is None:
        return NotChecked("How busy the run's cores were was not sampled.")
    bound = f"The run may use {allowed} of {units.counted(cores.online, 'core')}"
    if cores.tree_busy < USED_UP * allowed or cores.wanted_threads <= allowed:
        return Clear(f"{bound}, and used {units.number(cores.tree_busy)}.")
    better = min(float(cores.wanted_threads), allowed + max(0.0, cores.online - cores.busy))
    parts = HOST_PARTS if trains_on_gpu(evidence, trainer) else (*HOST_PARTS, *COMPUTE_PARTS)
    claims = pl.col("part").is_in(list(parts))
    share = (1.0 - allowed / better) * evidence.account(trainer).share_of(claims)
    if share < QUIET_SHARE:
        return Clear(f"{bound}; the others are busy, too.")
    return [_finding(cores, allowed, better, share, claims, mean_step_ns(evidence, trainer))]


def _finding(
    cores: Processors, allowed: int, better: float, share: float, claims: pl.Expr, step_ns: float
) -> Finding:
    """Return the finding."""
    return Finding(
        title=f"The run is bound to {allowed} of {units.counted(cores.online or 0, 'core')} and uses them up, which "
        f"costs up to {SHARE} of the training loop.",
        share=share,
        saving=saving(step_ns, 0.0, share * step_ns),
        evidence=(
            f"It used {units.number(cores.tree_busy or 0.0)} cores and wants {cores.wanted_threads}; the whole machine "
            f"used {units.number(cores.busy or 0.0)}.",
        ),
        advice=f"Let the run use {units.counted(round(better), 'core')} (--cpus-per-task of Slurm, --bind-to none of "
        "mpirun, cpuset, taskset), or start fewer workers and threads.",
        verdict="throttled",
        confidence="inferred",
        claims=claims,
    )
