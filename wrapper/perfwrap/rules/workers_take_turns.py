"""The workers wait for each other: at a lock that lets one of them at a time do what a batch needs.

What it finds
    Several DataLoader workers that the training waits for 2 % of the loop or more, and that spend a fifth of the time
    of making batches waiting for a lock which another process holds: on a file (flock, lockf), or a lock or
    semaphore that processes share.

Why it costs
    What stands behind the lock, a store with one connection, an archive with one handle, a file that is open for one at
    a time, serves one worker after the other. More workers then wait longer, each for all others.

How the saving is worked out
    The waits are measured by looking, some times a second, in what the kernel has the workers sleep. At best, without
    the lock, a batch takes as much less as was waited for it; a step takes max(rest, batch / workers) then, within the
    cores that the run may use. Whether what is behind the lock can serve several at once nobody has seen: at worst
    nothing is gained.

How to fix
    Give each worker a handle, connection or file of its own, opened in worker_init_fn or at the first sample. Hold the
    lock for less: fetch under it, decode outside of it. Fetch many samples at once. Copy the data to where no lock is
    needed. More workers do not help.

When it is wrong
    When the workers wait for a lock only while something starts. What serves one at a time without a lock of the
    machine, such as a server with one connection, is not seen; nor are locks of workers that have threads of their own.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.worker_need import Step
from perfwrap.rules import making
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, NotChecked, locate, named, place

NEEDS = ("data", "steady_steps")

LEAST_LOCKED = 0.2
"""Share of making batches that is waiting for a lock, from which it is a reason; workers that meet at a lock now and
then wait less."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for workers that wait for locks."""
    known, _, answer = making.held_up_by(evidence, trainer, lambda loader: float(loader.workers or 0), 2.0)
    if answer is not None:
        return answer
    if not known:
        return Clear("No DataLoader with several workers is waited for.")
    seen = [(loader, step, _locked(evidence, trainer, loader)) for loader, step in known]
    told = [(loader, step, locked) for loader, step, locked in seen if locked is not None]
    if not told:
        return NotChecked("Nobody looked whether workers wait for locks: run with monitors, on Linux.")
    found = [
        _finding(evidence, trainer, loader, step, locked)
        for loader, step, locked in told
        if locked >= LEAST_LOCKED
    ]
    most = units.share(max(locked for _, _, locked in told))
    return found or Clear(f"Workers wait for locks {most} of the time of making batches.")


def _locked(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> float | None:
    """Return the share of making batches in which workers wait for locks."""
    states = evidence.making_states(trainer, loader)
    return None if states is None else states.lock_share


def _finding(evidence: Evidence, trainer: Trainer, loader: LoaderUse, step: Step, locked: float) -> Finding:
    """Return the finding about one loader."""
    where = named("the DataLoader", loader.created)
    samples = loader.making.getitem_line if loader.making else None
    free = step.cheaper(locked, cpu=False).with_workers(step.workers)
    return Finding(
        title=f"{SHARE} of the training loop is spent waiting for workers of {where} that wait for each other at a "
        "lock.",
        share=loader.late_share,
        saving=(min(1.0, free / step.now_ns) if step.now_ns else 1.0, 1.0),
        evidence=(
            f"{units.share(locked)} of the time of making batches {units.counted(step.workers, 'worker')} wait for a "
            "lock that another process holds.",
            *making.split(loader),
            *making.sampled(evidence, trainer, loader),
        ),
        advice=f"Look for what {place(samples, 'the data set')} does under a lock: give each worker a handle or "
        "connection of its own, hold the lock for less, or fetch many samples at once. More workers do not help.",
        verdict="data-bound",
        location=locate(samples or loader.created),
        confidence="inferred",
        claims=making.waits(loader),
    )
