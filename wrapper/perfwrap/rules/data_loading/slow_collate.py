"""The collate function takes a large part of the time of making a batch.

What it finds
    A DataLoader with workers that the training waits for during at least 2 % of the loop, whose collate function takes
    at least 30 % of the time in which its workers make batches.

Why it costs
    Collation processes every sample, or every number, once more. This is slow in Python, and more workers do not make
    it cheaper; they only compete for the cores.

How the gain is estimated
    Measured in the workers: the collate function's part of making a batch. At best all of it disappears; a step then
    takes what its rest, its workers and the cores allow. At worst 75 % of that gain remains.

How to fix
    Return tensors from the dataset and let torch stack them. Allocate the batch tensor once and fill it row by row. Pad
    with torch.nn.utils.rnn.pad_sequence. Do on the GPU what works on whole batches (one-hot encoding, normalization).

When it is wrong
    When the function does necessary work that the dataset would have to do instead: moving it gains nothing.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.what_if import MOST
from perfwrap.measures.data_loading.loaders import LoaderUse
from perfwrap.measures.data_loading.worker_need import Step
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.data_loading import _batch_time as making
from perfwrap.rules.data_loading import _caching as caching
from perfwrap.rules.data_loading import _fixes as fixes
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, Option, locate, named

NEEDS = ("data", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_collate_share: float = 0.3
    """The collate function's share of making a batch."""
    min_gain_share: float = MOST
    """Minimum part of the gain: the speed of the fixed function is unknown."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for collate functions that slow the workers down."""
    slow, largest, answer = making.held_up_by(evidence, trainer, share_of, limits.min_collate_share)
    if answer is not None:
        return answer
    found = [_finding(evidence, trainer, loader, step, limits) for loader, step in slow]
    return found or Clear(f"Collation takes {units.share(largest)} of making a batch.")


def share_of(loader: LoaderUse) -> float:
    """Return the collate function's share of making a batch, 0 if not recorded."""
    if loader.making is None or not loader.making.collate_ns:
        return 0.0
    return loader.making.collate_ns / loader.making.fetch_ns


def _finding(evidence: Evidence, trainer: Trainer, loader: LoaderUse, step: Step, limits: Limits) -> Finding:
    """Return the finding about one loader."""
    made = loader.making
    assert made is not None
    name = (made.collate or "the collate function").removeprefix("__main__.")
    where = named(name, made.collate_line)
    best = min(1.0, step.cheaper(share_of(loader)).range_with(step.workers)[0] / step.now_ns)
    return Finding(
        title=f"{SHARE} of the training loop waits for batches; {units.share(share_of(loader))} of making a "
        f"batch is collation in {where}.",
        share=loader.late_share,
        evidence=(
            f"Collation takes {units.duration(made.collate_ns)} of {units.duration(made.fetch_ns)} per batch with "
            f"num_workers={step.workers}.",
            *making.split(loader),
            *making.sampled(evidence, trainer, loader),
            *caching.of_collation(evidence, trainer, loader),
        ),
        options=(
            Option(
                f"Make {where} cheaper.",
                (best, 1.0 - limits.min_gain_share * (1.0 - best)),
                f"{units.share(share_of(loader))} of making a batch",
                fixes.CEILING,
                "Build the batch with a few operations on whole tensors instead of a Python loop over its samples.",
            ),
            *fixes.more_workers(loader, step),
        ),
        verdict="data-bound",
        location=locate(made.collate_line or loader.created),
        confidence="inferred",
        claims=making.waits(loader),
    )
