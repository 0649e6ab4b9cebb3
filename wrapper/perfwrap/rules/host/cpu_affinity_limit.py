"""The run may use only some of the machine's cores, and keeps all of them busy.

What it finds
    A run that is bound to at most half of the machine's cores (taskset, a batch system, a container's cpuset), keeps at
    least 90 % of these busy and has more threads and workers than them, while other cores are idle.

Why it costs
    Threads and workers share the cores that they may use; they cannot use the idle ones.

How the gain is estimated
    Estimated: with one core per runnable thread, but no more than the machine has idle, the host's part of the loop
    shrinks by that ratio at best. The lower bound is no gain.

How to fix
    Request more cores: Slurm's --cpus-per-task, mpirun's --bind-to none, the container's cpuset, the list of taskset.
    Or start fewer workers.

When it is wrong
    When the other cores belong to other jobs that are idle only now.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import COMPUTE_PARTS, mean_step_ns, trains_on_gpu
from perfwrap.measures.account.what_if import saving
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.host.processors import Processors, find_processors
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, NotChecked, Option

NEEDS = ("host", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    max_allowed_share: float = 0.5
    """Share of the machine's cores up to which the limit is reported; some batch systems reserve a few cores."""
    min_busy_share: float = 0.9
    """Busy share of its cores from which the run has too few; thread_oversubscription covers the other cases."""


HOST_PARTS = ("python", "data")
"""The work of the host for a model on a GPU."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Compare the cores that the run may use with all cores."""
    cores = evidence.get(find_processors, trainer)
    allowed = cores.allowed
    if allowed is None or cores.online is None:
        return NotChecked("The cores that the run may use are unknown.")
    if allowed > limits.max_allowed_share * cores.online:
        return Clear(f"The run may use {allowed} of {units.counted(cores.online, 'core')}.")
    if cores.tree_busy is None or cores.wanted_threads is None or cores.busy is None:
        return NotChecked("CPU use of the run was not recorded.")
    bound = f"The run may use {allowed} of {units.counted(cores.online, 'core')}"
    if cores.tree_busy < limits.min_busy_share * allowed or cores.wanted_threads <= allowed:
        return Clear(f"{bound}, and used {units.number(cores.tree_busy)}.")
    better = min(float(cores.wanted_threads), allowed + max(0.0, cores.online - cores.busy))
    parts = HOST_PARTS if trains_on_gpu(evidence, trainer) else (*HOST_PARTS, *COMPUTE_PARTS)
    claims = pl.col("part").is_in(list(parts))
    share = (1.0 - allowed / better) * evidence.get(find_account, trainer).share_of(claims)
    if share < limits.min_reported_share:
        return Clear(f"{bound}; the other cores are busy too.")
    return [_finding(cores, allowed, better, share, claims, mean_step_ns(evidence, trainer))]


def _finding(
    cores: Processors, allowed: int, better: float, share: float, claims: pl.Expr, step_ns: float
) -> Finding:
    """Return the finding."""
    return Finding(
        title=f"The run is bound to {allowed} of {units.counted(cores.online or 0, 'core')} and keeps them busy, which "
        f"costs up to {SHARE} of the training loop.",
        share=share,
        evidence=(
            f"It uses {units.number(cores.tree_busy or 0.0)} cores and has {cores.wanted_threads} threads and workers; "
            f"the whole machine uses {units.number(cores.busy or 0.0)} cores.",
        ),
        options=(
            Option(
                f"Let the run use {units.counted(round(better), 'core')}.",
                saving(step_ns, 0.0, share * step_ns),
                f"bound to {units.counted(allowed, 'core')}",
                details="Slurm: --cpus-per-task, mpirun: --bind-to none; or cpuset, taskset.",
            ),
            Option(
                f"Start fewer workers and threads than {cores.wanted_threads}.",
                (1.0, 1.0),
                "they only compete less",
            ),
        ),
        verdict="throttled",
        confidence="inferred",
        claims=claims,
    )
