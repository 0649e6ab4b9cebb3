"""Putting samples together into a batch takes much of what making a batch takes.

What it finds
    A DataLoader with workers that the training waits for during 2 % of the loop or more, whose collate function takes
    30 % or more of the time in which its workers make batches.

Why it costs
    Collation handles each sample, or each number, once more. In Python that is slow, and no worker makes it faster;
    they only take turns on the cores.

How the saving is worked out
    Measured in the workers: the collate function's part of making a batch. At best all of it goes: then a step takes
    what its rest, its workers and the cores allow. At worst half of that gain is left.

How to fix
    Return tensors from the data set and let torch stack them. Allocate the batch's tensor once and fill it row by
    row. Pad with torch.nn.utils.rnn.pad_sequence. Do on the device what can be done on whole batches (one-hot
    encoding, normalisation).

When it is wrong
    When the function does necessary work that the data set would have to do instead: moving it gains nothing.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.worker_need import Step
from perfwrap.rules import making
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, locate, named

NEEDS = ("data", "steady_steps")

LEAST_SHARE = 0.3
"""The collate function's share of making a batch; the catalogue's figure."""

KEPT = 0.5
"""The least part of the gain that is promised: nobody knows how fast the mended function will be."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for collate functions that hold the workers up."""
    slow, largest, answer = making.held_up_by(evidence, trainer, share_of, LEAST_SHARE)
    if answer is not None:
        return answer
    found = [_finding(evidence, trainer, loader, step) for loader, step in slow]
    return found or Clear(f"Collation takes {units.share(largest)} of making a batch.")


def share_of(loader: LoaderUse) -> float:
    """Return the collate function's share of making a batch, 0 where it was not told apart."""
    if loader.making is None or not loader.making.collate_ns:
        return 0.0
    return loader.making.collate_ns / loader.making.fetch_ns


def _finding(evidence: Evidence, trainer: Trainer, loader: LoaderUse, step: Step) -> Finding:
    """Return the finding about one loader."""
    made = loader.making
    assert made is not None
    name = (made.collate or "the collate function").removeprefix("__main__.")
    where = named(name, made.collate_line)
    best = min(1.0, step.cheaper(share_of(loader)).with_workers(max(1, step.workers)) / step.now_ns)
    return Finding(
        title=f"{SHARE} of the training loop is spent waiting for batches, and {units.share(share_of(loader))} of "
        f"making one is collation by {where}.",
        share=loader.late_share,
        saving=(best, 1.0 - KEPT * (1.0 - best)),
        evidence=(
            f"Collation takes {units.duration(made.collate_ns)} of {units.duration(made.fetch_ns)} per batch, with "
            f"num_workers={step.workers}.",
            *making.split(loader),
            *making.sampled(evidence, trainer, loader),
        ),
        advice=f"Make {where} cheaper: build the batch with a few operations on whole tensors instead of handling "
        "its samples one by one in Python.",
        verdict="data-bound",
        location=locate(made.collate_line or loader.created),
        experiment="cached-batch",
        confidence="inferred",
        claims=making.waits(loader),
    )
