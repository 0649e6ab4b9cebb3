"""Each epoch begins with a long wait for its first batch.

What it finds
    A training DataLoader whose first batch of an epoch takes at least three times as long as making a batch usually
    does, where that takes 2 % of the training loop or more and is not the start of the workers' processes.

Why it costs
    Nothing is made ahead across the end of an epoch: what a data set does before its first sample (filling a shuffle
    buffer, reading an index, opening files) stands between the epochs, and the training waits for all of it.

How the saving is worked out
    Measured: the first wait of each epoch in the steady loop, with the garbage that is collected in it, beyond the
    time of making one batch. At best all of it goes; at worst half of it does.

How to fix
    Do once what is done in each epoch: read the index in __init__, keep files open, use a smaller shuffle buffer or
    give out samples while it fills. Run several epochs through one iterator (a sampler that goes on for ever).

When it is wrong
    When each epoch must see data that were not there before.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.loop import COMPUTE_PARTS
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, locate, named

NEEDS = ("data", "steady_steps")

TIMES = 3.0
"""The first batch over a usual one, from which it is long; an empty queue alone costs one making of a batch."""

LEAST_STARTS = 2
"""Epochs that began inside the steady loop; a single one tells nothing about the next."""

KEPT = 0.5
"""The least part of the wait that is promised to go: some of what an epoch needs first may be needed."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for epochs that begin with a long wait."""
    loaders = [loader for loader in evidence.loaders(trainer) if loader.training]
    if not loaders:
        return Clear("No DataLoader fed the training.")
    answers = [_finding(evidence, trainer, loader) for loader in loaders]
    found = [finding for finding in answers if finding is not None and finding.share >= QUIET_SHARE]
    return found or Clear("No epochs began with a long wait that the start of the workers does not explain.")


def _finding(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> Finding | None:
    """Return the finding about one loader, None where first batches are no longer than they must be."""
    account = evidence.account(trainer)
    waits = (
        account.segments.with_columns(epoch=_begins(loader).fill_null(False).cum_sum())
        .filter(_claims(loader).fill_null(False))
        .group_by("epoch")
        .agg((pl.col("end") - pl.col("start")).sum().alias("ns"))["ns"]
    )
    if waits.len() < LEAST_STARTS:
        return None
    usual_ns = _usual_ns(evidence, trainer, loader)
    first_ns = float(waits.sum()) / waits.len()
    # Processes that start anew are another problem, with another remedy; what they take must be known.
    started_ns: float | None = 0.0
    if loader.workers and (loader.made_again or not loader.persistent_workers):
        started_ns = None if loader.making is None else loader.making.worker_start_ns
    if started_ns is None:
        return None
    long_ns = first_ns - usual_ns - started_ns
    if first_ns < TIMES * usual_ns or long_ns < started_ns:
        return None
    share = waits.len() * long_ns / max(1, account.total_ns)
    where = named("the DataLoader", loader.created)
    line = None if loader.making is None else loader.making.getitem_line
    return Finding(
        title=f"{SHARE} of the training loop is spent waiting for the first batch of an epoch from {where}.",
        share=share,
        saving=(1.0 - share, 1.0 - KEPT * share),
        evidence=(
            f"{units.counted(waits.len(), 'epoch')} began in the steady loop; the first batch took "
            f"{units.duration(first_ns)} on average, making a usual one takes {units.duration(usual_ns)}.",
            f"The median wait for a batch is {units.duration(loader.median_wait_ns)}.",
        ),
        advice="Do once what the data set does before the first sample of each epoch (index, buffers, files), or run "
        "several epochs through one iterator.",
        verdict="data-bound",
        location=locate(line or loader.created),
        claims=_claims(loader),
    )


def _usual_ns(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> float:
    """Return what making a batch usually takes."""
    states = evidence.worker_states(trainer, loader) if loader.workers else ()
    medians = [state.median_fetch_ns for state in states]
    return max(medians, default=loader.median_wait_ns or 0.0)


def _begins(loader: LoaderUse) -> pl.Expr:
    """Return the segments with which an epoch begins, or the one before has ended."""
    return _own(loader) & pl.col("operation").is_in(["loader_start", "data_end"])


def _claims(loader: LoaderUse) -> pl.Expr:
    """Return what is waited between the beginning of an epoch and the first use of a batch.

    The first wait may be in pieces: what garbage is collected in it is a part of it. Not what sums tell, which are
    those of many batches.
    """
    marker = pl.when(_begins(loader)).then(True).when(pl.col("part").is_in(list(COMPUTE_PARTS))).then(False)
    is_first = marker.forward_fill().fill_null(False) & ~pl.col("estimated")
    is_wait = _own(loader) & (pl.col("operation") == "data")
    within = pl.when(pl.col("part") != "gc").then(is_wait).forward_fill().fill_null(False)
    return within & is_first


def _own(loader: LoaderUse) -> pl.Expr:
    return (pl.col("part") == "data") & (pl.col("name") == loader.name)
