"""DataLoader workers make batches that the training thread would make in less time than it takes to receive them.

What it finds
    A training DataLoader with workers whose batches mostly lie ready, where receiving a batch takes twice as long as
    making one or more, and a tenth of the training loop or more would be left over if the training thread made them.

Why it costs
    A batch from a worker goes through a queue, a pickle and shared memory, each tensor with a file descriptor of its
    own. That takes about a millisecond however small the batch is, and every worker wants a core besides.

How the saving is worked out
    Measured: all waits for the loader, less the time of making as many batches, which was measured in the workers. At
    worst nine tenths of it go; at best all of it, and up to three tenths more, as no worker takes the training's
    processors and caches then.

How to fix
    Pass num_workers=0, or make batches larger, so that there are fewer to hand over. Where samples lie in memory
    anyway, index a tensor with the batch's indices instead of collecting samples one by one.

When it is wrong
    When the workers run ahead of something that is slow now and then, a cold disk for instance: the time of making a
    batch is a mean over the steady loop. Where others took the cores, receiving is slow for that reason; nothing is
    reported then.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import without_measured
from perfwrap.rules import making
from perfwrap.rules.model import MAJOR_SHARE, SHARE, Answer, Clear, Finding, NotChecked, locate, named

NEEDS = ("data", "steady_steps")

MOSTLY_READY = 0.5
"""Part of the waits from which they are told as receiving, as in data_loader_wait."""

LEAST_RATIO = 2.0
"""Receiving over making a batch, from which workers are needless: the times of both differ by half between machines
and batches."""

LEAST_GAIN = MAJOR_SHARE
"""Share of the loop that must be left over; below it, few workers do little harm."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Hold receiving batches against making them."""
    fed = [loader for loader in evidence.loaders(trainer) if loader.training and loader.workers]
    if not fed:
        return Clear("No DataLoader with workers fed the training.")
    known = [loader for loader in fed if loader.making is not None and loader.ready is not None]
    if not known:
        return NotChecked(making.NO_RECORD)
    crowded = [loader for loader in known if making.is_crowded(evidence, trainer, loader)]
    found = [
        _finding(loader, _gain(loader)) for loader in known if loader not in crowded and _is_needless(loader)
    ]
    if found:
        return found
    if len(crowded) == len(known):
        return NotChecked(making.DENIED)
    return Clear(
        "Making a batch takes the workers longer than the training takes to receive it, or nearly so."
    )


def _wait_ns(loader: LoaderUse) -> float:
    """Return the mean wait for a batch."""
    return loader.wait_ns / max(1, loader.batches)


def _gain(loader: LoaderUse) -> float:
    """Return the share of the loop that is left over when the training thread makes the batches."""
    return loader.share * (1.0 - (loader.fetch_ns or 0.0) / _wait_ns(loader))


def _is_needless(loader: LoaderUse) -> bool:
    """Say whether the training would be quicker without the workers."""
    if not loader.fetch_ns or not loader.wait_ns or loader.ready is None:
        return False
    is_ready = loader.ready.received_share >= MOSTLY_READY
    return is_ready and _wait_ns(loader) >= LEAST_RATIO * loader.fetch_ns and _gain(loader) >= LEAST_GAIN


def _finding(loader: LoaderUse, share: float) -> Finding:
    """Return the finding about one loader."""
    workers = units.counted(loader.workers or 0, "worker")
    where = named("the DataLoader", loader.created)
    make = units.duration(loader.fetch_ns or 0.0)
    return Finding(
        title=f"{SHARE} of the training loop is lost to the {workers} of {where}: a batch takes "
        f"{units.duration(_wait_ns(loader))} to receive and {make} to make.",
        share=share,
        saving=without_measured(share),
        evidence=(
            f"{units.share(loader.ready.received_share if loader.ready else 0.0)} of the waiting was for batches that "
            f"lay ready; {units.count(loader.batches)} were received.",
            *making.split(loader),
        ),
        advice=f"Pass num_workers=0 to {where}: the training makes such batches itself in less time. Or make them "
        "larger, so that there are fewer to hand over.",
        verdict="data-bound",
        location=locate(loader.created),
        experiment="workers=0",
        confidence="inferred",
        claims=making.waits(loader),
    )
