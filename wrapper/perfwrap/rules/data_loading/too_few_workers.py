"""The workers are always busy, and more of them would help.

What it finds
    A DataLoader whose workers make batches at least 90 % of their time while the training waits for them at least 2 %
    of the loop, where more workers would remove at least half of that wait.

Why it costs
    A step cannot be faster than the time of making a batch divided by the number of workers. CPUs, disks and servers
    could do more, but are not used.

How the gain is estimated
    Measured in the workers: the time to make each batch, and how much of it they use or want a core. The loop is
    simulated with more workers on the same cores, as in data_loader_single_process. At the lower bound, what workers
    wait for serves no more of them at once than today, so that it may be no gain.

How to fix
    Pass this num_workers to the DataLoader: the smallest number that is about as good as any in the model. Workers that
    mostly wait (for a server, a disk, a decoder elsewhere) may be more than the cores.

When it is wrong
    When the server or disk that the workers wait for is at its limit: more workers then wait longer. When each worker
    holds a large copy of the dataset and memory is short.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.data_loading.loaders import LoaderUse
from perfwrap.measures.data_loading.worker_need import Step, best_workers, measured_step
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.data_loading import _batch_time as making
from perfwrap.rules.data_loading import _caching as caching
from perfwrap.rules.data_loading import _fixes as fixes
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, locate, named

NEEDS = ("data", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_busy_share: float = 0.9
    """Share of their time from which workers count as busy."""
    min_wait_share: float = 0.5
    """Share of the wait that more workers must remove; otherwise making a batch is too slow."""
    min_waiting_share: float = 0.5
    """Share of making a batch without need for a core from which it is mentioned."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for busy workers where more of them would help."""
    loaders, answer = making.in_workers(evidence, trainer)
    if answer is not None:
        return answer
    busy = [loader for loader in loaders if _idle(loader) <= 1.0 - limits.min_busy_share]
    if not busy:
        idle = units.share(min(_idle(loader) for loader in loaders))
        return Clear(f"The workers are idle {idle} of their time.")
    steps = [(loader, measured_step(evidence, trainer, loader)) for loader in busy]
    found = [
        _finding(evidence, trainer, loader, step, limits)
        for loader, step in steps
        if step is not None and _helps(step, best_workers(step), limits)
    ]
    return found or Clear("The workers are busy, but more of them would not remove half of the wait.")


def _idle(loader: LoaderUse) -> float:
    """Return the idle share of the workers."""
    share = None if loader.making is None else loader.making.idle_share
    return 0.0 if share is None else share


def _helps(step: Step, workers: int, limits: Limits) -> bool:
    """Return whether this number of workers removes most of the wait."""
    if workers <= step.workers:
        return False
    return step.now_ns - step.range_with(workers)[0] >= limits.min_wait_share * (step.now_ns - step.rest_ns)


def _finding(evidence: Evidence, trainer: Trainer, loader: LoaderUse, step: Step, limits: Limits) -> Finding:
    """Return the finding about one loader."""
    where = named("the DataLoader", loader.created)
    today = units.counted(step.workers, "worker")
    words = [
        f"A worker takes {units.duration(step.fetch_ns)} per batch; a step takes {units.duration(step.rest_ns)} "
        f"without the wait, so {today} cannot keep up.",
        f"Workers make batches {units.share(1.0 - _idle(loader))} of their time.",
        *making.split(loader),
        *making.sampled(evidence, trainer, loader),
        *caching.sentences(evidence, trainer, loader),
    ]
    if step.waiting_share >= limits.min_waiting_share:
        words.append(
            f"{units.share(step.waiting_share)} of that time a worker waits and needs no core, so more workers than "
            "cores can help, unless what they wait for serves one at a time (a lock, a disk at its limit)."
        )
    if step.cores is not None:
        words.append(f"The run may use {units.counted(round(step.cores), 'core')}.")
    if step.crowded:
        words.append(making.OTHER_PROGRAMS)
    return Finding(
        title=f"{SHARE} of the training loop waits for {where}: {today} cannot keep up.",
        share=loader.late_share,
        evidence=tuple(words),
        options=(
            *fixes.more_workers(loader, step, 0.0),
            *fixes.caches(evidence, trainer, loader, step),
            *fixes.cheaper(evidence, trainer, loader, step),
        ),
        verdict="data-bound",
        location=locate(loader.created),
        confidence="inferred",
        claims=making.waits(loader),
    )
