"""A CPU quota stops the run's processes again and again.

What it finds
    A control group (of a container, a pod or a batch job) whose CPU quota withheld at least 5 % of the CPU time that
    the run wanted during the training loop.

Why it costs
    When the quota of a 100 ms period is used up, all threads stop until the next period, whatever they are doing. A
    step waits for the slowest of them.

How the gain is estimated
    Estimated from the measured withheld share: at best the host's part of the loop shrinks by it; the lower bound is no
    gain, for threads whose work was not urgent.

How to fix
    Raise the CPU limit of the container (docker run --cpus, the pod's resources.limits.cpu), or run fewer threads and
    workers than the quota has cores.

When it is wrong
    When other programs of the same group use the quota.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import COMPUTE_PARTS, mean_step_ns, trains_on_gpu
from perfwrap.measures.account.what_if import saving
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_host_facts
from perfwrap.measures.host.processors import find_processors
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, NotChecked, Option

NEEDS = ("host", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    min_throttled_share: float = 0.05
    """Withheld share of the wanted CPU time; below it, single threads hit the quota now and then. The same limit as in
    thread_oversubscription."""


HOST_PARTS = ("python", "data")
"""The work of the host for a model on a GPU."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check what the quota withheld."""
    cores = evidence.get(find_processors, trainer)
    withheld = cores.throttled_share
    quota = evidence.get(find_host_facts, trainer.host).get("cpu_quota_cores")
    if withheld is None:
        if quota is None:
            return Clear("No CPU quota limits this run.")
        return NotChecked(f"Throttling by the quota of {quota} cores was not recorded.")
    if withheld < limits.min_throttled_share:
        return Clear(f"The CPU quota withheld {units.share(withheld)} of the wanted CPU time.")
    parts = HOST_PARTS if trains_on_gpu(evidence, trainer) else (*HOST_PARTS, *COMPUTE_PARTS)
    claims = pl.col("part").is_in(list(parts))
    share = withheld * evidence.get(find_account, trainer).share_of(claims)
    if share < limits.min_reported_share:
        return Clear(f"The CPU quota costs at most {units.share(share)} of the loop.")
    step_ns = mean_step_ns(evidence, trainer)
    limit = f" of {quota} cores" if quota else ""
    fit = max(1, int(cores.usable or 1.0))
    return [
        Finding(
            title=f"The CPU quota{limit} withheld {units.share(withheld)} of the wanted CPU time, which costs up "
            f"to {SHARE} of the training loop.",
            share=share,
            evidence=(_use(cores.tree_busy, cores.workers, cores.threads_per_trainer),),
            options=(
                Option(
                    "Raise the container's CPU limit.",
                    saving(step_ns, 0.0, share * step_ns),
                    f"{units.share(withheld)} of the wanted CPU time withheld",
                ),
                Option(
                    f"Run at most {units.counted(fit, 'thread')} and worker processes at once (OMP_NUM_THREADS, "
                    "num_workers).",
                    saving(step_ns, 0.0, share * step_ns),
                ),
            ),
            verdict="throttled",
            confidence="inferred",
            claims=claims,
        )
    ]


def _use(busy: float | None, workers: int, threads: int | None) -> str:
    """Return what used the CPU."""
    used = "an unknown number of cores" if busy is None else f"{units.number(busy)} cores"
    each = "" if threads is None else f"; each training process has {units.counted(threads, 'thread')}"
    return f"The run used {used} on average{each}, and {units.counted(workers, 'DataLoader worker')}."
