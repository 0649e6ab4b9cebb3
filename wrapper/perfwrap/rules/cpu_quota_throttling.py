"""A quota on processor time stops the run's processes again and again.

What it finds
    A control group (of a container, a pod or a batch job) whose CPU quota withheld 5 % or more of the processor time
    that was wanted during the training loop.

Why it costs
    When the quota of a tenth of a second is used up, all threads stand still until the next tenth begins, in the midst
    of whatever they were doing; a step waits for the slowest of them.

How the saving is worked out
    Inferred from the measured share that was withheld: at best the host's part of the loop shrinks by it; at worst
    nothing is gained, where what was held back had time.

How to fix
    Raise the CPU limit of the container (docker run --cpus, the pod's resources.limits.cpu), or run fewer threads and
    workers than the quota has cores.

When it is wrong
    When other programs of the same group use the quota up.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import COMPUTE_PARTS, mean_step_ns, trains_on_gpu
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import saving
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("host", "steady_steps")

THROTTLED_SHARE = 0.05
"""Share of the wanted processor time that a quota withheld from which it is told: below, single threads touch the
quota now and then; the same limit as that of thread_oversubscription."""

HOST_PARTS = ("python", "data")
"""What the host's processors do for a model that runs on a GPU."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look at what the quota withheld."""
    cores = evidence.processors(trainer)
    withheld = cores.throttled_share
    quota = evidence.host_facts(trainer.host).get("cpu_quota_cores")
    if withheld is None:
        if quota is None:
            return Clear("No CPU quota limits this run.")
        return NotChecked(f"A quota of {quota} cores holds, but what it withholds was not watched.")
    if withheld < THROTTLED_SHARE:
        return Clear(f"The CPU quota withheld {units.share(withheld)} of the processor time wanted.")
    parts = HOST_PARTS if trains_on_gpu(evidence, trainer) else (*HOST_PARTS, *COMPUTE_PARTS)
    claims = pl.col("part").is_in(list(parts))
    share = withheld * evidence.account(trainer).share_of(claims)
    if share < QUIET_SHARE:
        return Clear(f"The CPU quota costs {units.share(share)} of the loop at most.")
    step_ns = mean_step_ns(evidence, trainer)
    limit = f" of {quota} cores" if quota else ""
    fit = max(1, int(cores.usable or 1.0))
    return [
        Finding(
            title=f"The CPU quota{limit} withheld {units.share(withheld)} of the processor time wanted, which costs up "
            f"to {SHARE} of the training loop.",
            share=share,
            saving=saving(step_ns, 0.0, share * step_ns),
            evidence=(_use(cores.tree_busy, cores.workers, cores.threads_per_trainer),),
            advice=f"Raise the container's CPU limit, or let no more than {units.counted(fit, 'thread')} and worker "
            "processes run at once (OMP_NUM_THREADS, num_workers).",
            verdict="throttled",
            confidence="inferred",
            claims=claims,
        )
    ]


def _use(busy: float | None, workers: int, threads: int | None) -> str:
    """Return what used the processors."""
    used = "an unknown number of cores" if busy is None else f"{units.number(busy)} cores"
    each = "" if threads is None else f"; each training process has {units.counted(threads, 'thread')}"
    return f"The run used {used} on average{each}, and {units.counted(workers, 'DataLoader worker')}."
