"""The workers wait for each other at a lock.

What it finds
    Several DataLoader workers that the training waits for during at least 2 % of the loop and that spend at least 20 %
    of the time of making batches waiting for a lock of another process: a file lock (flock, lockf), or a lock or
    semaphore that processes share.

Why it costs
    The locked resource (a store with one connection, an archive with one handle, a file that one process may open)
    serves one worker after the other. With more workers, each waits longer.

How the gain is estimated
    Measured several times per second: in which kernel function a worker sleeps. At best, without the lock, a batch
    takes less by the time of its lock waits; the loop is then simulated on its cores. It is unknown whether the locked
    resource supports concurrent access, so the lower bound is no gain.

How to fix
    Give each worker its own handle, connection or file, opened in worker_init_fn or at the first sample. Hold the lock
    for a shorter time: fetch inside it, decode outside. Fetch many samples at once. Copy the data to a place that needs
    no lock. More workers do not help.

When it is wrong
    When the workers wait for a lock only at their start. Not detected: a server with one connection (no lock on this
    machine), and locks of workers with several threads of their own.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.data_loading.loaders import LoaderUse
from perfwrap.measures.data_loading.worker_need import Step
from perfwrap.measures.data_loading.worker_states import find_making_states
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.data_loading import _batch_time as making
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, NotChecked, Option, locate, named, place

NEEDS = ("data", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_locked_share: float = 0.2
    """Share of making batches spent waiting for a lock from which it is a problem; occasional lock waits are
    shorter."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for workers that wait for locks."""
    known, _, answer = making.held_up_by(evidence, trainer, lambda loader: float(loader.workers or 0), 2.0)
    if answer is not None:
        return answer
    if not known:
        return Clear("The training does not wait for a DataLoader with several workers.")
    seen = [(loader, step, _locked(evidence, trainer, loader)) for loader, step in known]
    known_locked = [(loader, step, locked) for loader, step, locked in seen if locked is not None]
    if not known_locked:
        return NotChecked("Lock waits of workers were not recorded; needs monitors on Linux.")
    found = [
        _finding(evidence, trainer, loader, step, locked)
        for loader, step, locked in known_locked
        if locked >= limits.min_locked_share
    ]
    largest = units.share(max(locked for _, _, locked in known_locked))
    return found or Clear(f"Workers wait for locks {largest} of the time of making batches.")


def _locked(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> float | None:
    """Return the share of making batches in which workers wait for locks."""
    states = evidence.get(find_making_states, trainer, loader)
    return None if states is None else states.lock_share


def _finding(evidence: Evidence, trainer: Trainer, loader: LoaderUse, step: Step, locked: float) -> Finding:
    """Return the finding about one loader."""
    where = named("the DataLoader", loader.created)
    samples = loader.making.getitem_line if loader.making else None
    free = step.cheaper(locked, cpu=False).range_with(step.workers)[0]
    return Finding(
        title=f"{SHARE} of the training loop waits for {where}, whose workers wait for each other at a lock.",
        share=loader.late_share,
        evidence=(
            f"{units.counted(step.workers, 'worker')} wait {units.share(locked)} of the time of making batches for a "
            "lock that another process holds.",
            *making.split(loader),
            *making.sampled(evidence, trainer, loader),
        ),
        options=(
            Option(
                f"Give each worker its own handle or connection in {place(samples, 'the dataset')}.",
                (min(1.0, free / step.now_ns) if step.now_ns else 1.0, 1.0),
                f"{units.share(locked)} of making a batch waits for a lock",
                details="Or hold the lock for a shorter time, or fetch many samples at once. More workers do not help.",
            ),
        ),
        verdict="data-bound",
        location=locate(samples or loader.created),
        confidence="inferred",
        claims=making.waits(loader),
    )
