"""The workers are busy all the time, and the run could use more of them.

What it finds
    A DataLoader whose workers make batches 90 % of their time or more while the training waits for them 2 % of the
    loop or more, where more workers would remove at least half of that wait.

Why it costs
    A step cannot be faster than the time of making a batch divided by the number of workers. What processors,
    disks and servers could do besides is left unused.

How the saving is worked out
    Measured in the workers: what a batch takes to make, and in how much of that time they run or want to. A step with
    N workers takes max(rest, batch / N), but never less than the processor time of both divided by the cores that
    the run may use (affinity and cgroup quota). The far end of the range keeps half of the gain when workers and
    training take all cores, four fifths when some stay free. Where workers mostly wait for something else, nothing is
    sure: nobody has seen yet whether that can serve more of them at once.

How to fix
    Pass the advised num_workers to the DataLoader: the smallest number that is about as good as any by that model.
    Workers that mostly wait (for a server, a disk, a decoder elsewhere) may be more than the cores.

When it is wrong
    When the server or disk that the workers wait for is itself at its limit: then more workers wait longer. When
    each worker holds a large copy of the data set and memory is short.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.worker_need import Step, best_workers, measured_step, saved
from perfwrap.rules import making
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, locate, named

NEEDS = ("data", "steady_steps")

BUSY_SHARE = 0.9
"""Share of their time from which workers count as busy; the catalogue's figure."""

LEAST_OF_WAIT = 0.5
"""Share of the wait that more workers must remove to be its explanation; else making a batch is what is slow."""

WAITING_SHARE = 0.5
"""Share of making a batch in which no processor is wanted, from which it is worth a word."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for busy workers that more of them would help."""
    loaders, answer = making.in_workers(evidence, trainer)
    if answer is not None:
        return answer
    busy = [loader for loader in loaders if _idle(loader) <= 1.0 - BUSY_SHARE]
    if not busy:
        idle = units.share(min(_idle(loader) for loader in loaders))
        return Clear(f"The workers wait for orders {idle} of their time.")
    steps = [(loader, measured_step(evidence, trainer, loader)) for loader in busy]
    found = [
        _finding(evidence, trainer, loader, step, workers)
        for loader, step in steps
        if step is not None and _helps(step, workers := best_workers(step))
    ]
    return found or Clear("The workers are busy, but more of them would not remove half of the wait.")


def _idle(loader: LoaderUse) -> float:
    """Return the share of their time in which the workers wait for orders."""
    share = None if loader.making is None else loader.making.idle_share
    return 0.0 if share is None else share


def _helps(step: Step, workers: int) -> bool:
    """Say whether so many workers remove most of what a step waits."""
    if workers <= step.workers:
        return False
    return step.now_ns - step.with_workers(workers) >= LEAST_OF_WAIT * (step.now_ns - step.rest_ns)


def _finding(evidence: Evidence, trainer: Trainer, loader: LoaderUse, step: Step, workers: int) -> Finding:
    """Return the finding about one loader."""
    where = named("the DataLoader", loader.created)
    today = units.counted(step.workers, "worker")
    words = [
        f"A batch takes a worker {units.duration(step.fetch_ns)}; a step takes {units.duration(step.rest_ns)} without "
        f"the wait, so {today} cannot keep up.",
        f"Workers make batches {units.share(1.0 - _idle(loader))} of their time.",
        *making.split(loader),
        *making.sampled(evidence, trainer, loader),
    ]
    best, worst = saved(step, step.with_workers(workers), workers)
    if step.waiting_share >= WAITING_SHARE:
        worst = 1.0
        words.append(
            f"{units.share(step.waiting_share)} of that time a worker waits and wants no processor, so more workers "
            "than cores can be at work, unless what they wait for serves one at a time (a lock, a disk at its limit)."
        )
    if step.cores is not None:
        words.append(f"The run may use {units.counted(round(step.cores), 'core')}.")
    return Finding(
        title=f"{SHARE} of the training loop is spent waiting for the {today} of {where}, too few for it.",
        share=loader.late_share,
        saving=(best, worst),
        evidence=tuple(words),
        advice=f"Pass num_workers={workers} instead of {step.workers} to {where}.",
        verdict="data-bound",
        location=locate(loader.created),
        experiment=f"workers={workers}",
        confidence="inferred",
        claims=making.waits(loader),
    )
