"""Receiving batches from DataLoader workers takes longer than making them in the training thread would.

What it finds
    A training DataLoader with workers whose batches are mostly ready, where receiving a batch takes at least twice as
    long as making it, and the training thread would save at least 10 % of the loop by making the batches itself.

Why it costs
    A batch from a worker goes through a queue, a pickle and shared memory, with one file descriptor per tensor. This
    takes about 1 ms even for a small batch, and every worker also needs a core.

How the gain is estimated
    Measured: all waits for the loader, minus the time of making the same number of batches, measured in the workers.
    The lower bound is nine tenths of that. The upper bound is a simulation without workers: batches need no shared
    memory (0.35 ms), and the training thread no longer sleeps until a worker has sent one (0.5 ms).

How to fix
    Pass num_workers=0, or use larger batches, so that fewer are sent. If the samples are in memory anyway, index a
    tensor with the indices of the batch instead of collecting samples one by one.

When it is wrong
    When the workers prefetch from something that is sometimes slow, such as a cold disk: the time of making a batch is
    a mean over the steady loop. If other processes used the CPU, receiving is slow for that reason, and nothing is
    reported.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.what_if import without_measured
from perfwrap.measures.data_loading.loaders import LoaderUse, find_loaders
from perfwrap.measures.data_loading.worker_need import Step, measured_step, saved
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.host.cores_taken import find_foreign_load
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.data_loading import _batch_time as making
from perfwrap.rules.model import MAJOR_SHARE, SHARE, Answer, Clear, Finding, NotChecked, Option, locate, named

NEEDS = ("data", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_ready_share: float = 0.5
    """Share of the waits from which they count as receiving, as in data_loader_wait."""
    min_ratio: float = 2.0
    """Receiving over making a batch from which workers are unnecessary; both times vary by half between machines and
    batches."""
    min_gain_share: float = MAJOR_SHARE
    """Share of the loop that must be saved; below it, a few workers do little harm."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Compare receiving batches with making them."""
    fed = [loader for loader in evidence.get(find_loaders, trainer) if loader.training and loader.workers]
    if not fed:
        return Clear("No DataLoader with workers feeds the training.")
    known = [loader for loader in fed if loader.making is not None and loader.ready is not None]
    if not known:
        return NotChecked(making.NO_RECORD)
    # If only the workers themselves take the cores, receiving is slow because of them.
    may_be_crowded = evidence.get(find_foreign_load, trainer) is not False
    crowded = [loader for loader in known if may_be_crowded and making.is_crowded(evidence, trainer, loader)]
    found = [
        _finding(loader, _gain(loader), measured_step(evidence, trainer, loader))
        for loader in known
        if loader not in crowded and _is_needless(loader, limits)
    ]
    if found:
        return found
    if len(crowded) == len(known):
        return NotChecked(making.BUSY_CPU)
    return Clear("Making a batch takes about as long as receiving it, or longer.")


def _wait_ns(loader: LoaderUse) -> float:
    """Return the mean wait for a batch."""
    return loader.wait_ns / max(1, loader.batches)


def _gain(loader: LoaderUse) -> float:
    """Return the share of the loop that is saved if the training thread makes the batches."""
    return loader.share * (1.0 - (loader.fetch_ns or 0.0) / _wait_ns(loader))


def _is_needless(loader: LoaderUse, limits: Limits) -> bool:
    """Return whether the training would be faster without the workers."""
    if not loader.fetch_ns or not loader.wait_ns or loader.ready is None:
        return False
    is_ready = loader.ready.received_share >= limits.min_ready_share
    return (
        is_ready
        and _wait_ns(loader) >= limits.min_ratio * loader.fetch_ns
        and _gain(loader) >= limits.min_gain_share
    )


def _saving(share: float, step: Step | None) -> tuple[float, float]:
    """Return the step-time ratios without workers, best and worst."""
    best, worst = without_measured(share)
    return best if step is None else min(best, saved(step, 0)[0]), worst


def _finding(loader: LoaderUse, share: float, step: Step | None) -> Finding:
    """Return the finding about one loader."""
    workers = units.counted(loader.workers or 0, "worker")
    where = named("the DataLoader", loader.created)
    make = units.duration(loader.fetch_ns or 0.0)
    return Finding(
        title=f"{SHARE} of the training loop is lost because the {workers} of {where} cost more than they save: "
        f"a batch takes {units.duration(_wait_ns(loader))} to receive and {make} to make.",
        share=share,
        evidence=(
            f"{units.share(loader.ready.received_share if loader.ready else 0.0)} of the waits were for batches that "
            f"were ready; {units.count(loader.batches)} were received.",
            *making.split(loader),
        ),
        options=(
            Option(
                f"Pass num_workers=0 to {where}.",
                _saving(share, step),
                f"{units.duration(_wait_ns(loader))} to receive a batch, {make} to make one",
                "workers=0",
                "The training thread makes such batches in less time.",
            ),
            Option("Use larger batches, so that fewer are sent.", (1.0, 1.0)),
        ),
        verdict="data-bound",
        location=locate(loader.created),
        confidence="inferred",
        claims=making.waits(loader),
    )
