"""Each epoch starts with a long wait for its first batch.

What it finds
    A training DataLoader whose first batch of an epoch takes at least three times as long as a normal batch, if this
    costs at least 2 % of the training loop and is not the start of the worker processes.

Why it costs
    No batch is made ahead across the end of an epoch. Whatever a dataset does before its first sample (fill a shuffle
    buffer, read an index, open files) delays the training between the epochs.

How the gain is estimated
    Measured: the first wait of each epoch in the steady loop, including garbage collection during it, minus the time of
    making one batch. At best all of it disappears; at worst half.

How to fix
    Do this work once instead of in every epoch: read the index in __init__, keep files open, use a smaller shuffle
    buffer or return samples while it fills. Or run several epochs with one iterator (an infinite sampler).

When it is wrong
    When each epoch must read new data.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import COMPUTE_PARTS
from perfwrap.measures.data_loading.loaders import LoaderUse, find_loaders
from perfwrap.measures.data_loading.worker_states import find_worker_states
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.stacks import sampled_making
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, Option, locate, named
from perfwrap.rules.stack_samples import main_function, quote
from perfwrap.rules.stack_samples import where as where_of

NEEDS = ("data", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    min_factor: float = 3.0
    """First batch over a normal batch from which it is long; an empty queue alone costs the time of one batch."""
    min_starts: int = 2
    """Epoch starts in the steady loop; a single one says nothing about the next."""
    min_sampled_share: float = 0.5
    """Part of all waits from which the samples of making batches are mostly those of the first ones."""
    min_gain_share: float = 0.5
    """Minimum part of the wait that the fix removes: some work before an epoch may be necessary."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for epochs that start with a long wait."""
    loaders = [loader for loader in evidence.get(find_loaders, trainer) if loader.training]
    if not loaders:
        return Clear("No DataLoader feeds the training.")
    answers = [_finding(evidence, trainer, loader, limits) for loader in loaders]
    found = [
        finding for finding in answers if finding is not None and finding.share >= limits.min_reported_share
    ]
    return found or Clear("No epoch starts with a long wait, apart from the start of the workers.")


def _finding(evidence: Evidence, trainer: Trainer, loader: LoaderUse, limits: Limits) -> Finding | None:
    """Return the finding about one loader, None if first batches take a normal time."""
    account = evidence.get(find_account, trainer)
    waits = (
        account.segments.with_columns(epoch=_begins(loader).fill_null(False).cum_sum())
        .filter(_claims(loader).fill_null(False))
        .group_by("epoch")
        .agg((pl.col("end") - pl.col("start")).sum().alias("ns"))["ns"]
    )
    if waits.len() < limits.min_starts:
        return None
    usual_ns = _usual_ns(evidence, trainer, loader)
    first_ns = float(waits.sum()) / waits.len()
    # Worker processes that restart are another problem with another fix; their time must be known.
    started_ns: float | None = 0.0
    if loader.workers and (loader.made_again or not loader.persistent_workers):
        started_ns = None if loader.making is None else loader.making.worker_start_ns
    if started_ns is None:
        return None
    long_ns = first_ns - usual_ns - started_ns
    if first_ns < limits.min_factor * usual_ns or long_ns < started_ns:
        return None
    share = waits.len() * long_ns / max(1, account.total_ns)
    where = named("the DataLoader", loader.created)
    line = None if loader.making is None else loader.making.getitem_line
    # Samples are of all batches: they tell about the first ones only if these take most of the time.
    is_most = not loader.workers and waits.len() * long_ns >= limits.min_sampled_share * loader.wait_ns
    sampled = sampled_making(evidence, trainer, loader) if is_most else None
    hottest = main_function(sampled)
    return Finding(
        title=f"{SHARE} of the training loop waits for the first batch of an epoch from {where}.",
        share=share,
        evidence=(
            f"{units.counted(waits.len(), 'epoch start')} in the steady loop: the first batch takes "
            f"{units.duration(first_ns)} on average, a normal one {units.duration(usual_ns)}.",
            f"The median wait for a batch is {units.duration(loader.median_wait_ns)}.",
            *quote(sampled, "while batches were made"),
        ),
        options=(
            Option(
                f"Do once, or make cheaper, the work of {where_of(hottest)} before the first sample of each epoch."
                if hottest
                else "Do once what the dataset does before the first sample of each epoch (index, buffers, files).",
                (1.0 - share, 1.0 - limits.min_gain_share * share),
                f"{units.duration(first_ns)} for a first batch, {units.duration(usual_ns)} for others",
            ),
            Option(
                "Run several epochs with one iterator.",
                (1.0 - share, 1.0 - limits.min_gain_share * share),
            ),
        ),
        verdict="data-bound",
        location=locate(hottest.line if hottest else line or loader.created),
        claims=_claims(loader),
    )


def _usual_ns(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> float:
    """Return the normal time of making a batch."""
    states = evidence.get(find_worker_states, trainer, loader) if loader.workers else ()
    medians = [state.median_fetch_ns for state in states]
    return max(medians, default=loader.median_wait_ns or 0.0)


def _begins(loader: LoaderUse) -> pl.Expr:
    """Select the segments that start an epoch, or end the one before."""
    return _own(loader) & pl.col("operation").is_in(["loader_start", "data_end"])


def _claims(loader: LoaderUse) -> pl.Expr:
    """Select the waits between the start of an epoch and the first use of a batch.

    The first wait may be split: garbage collection during it is part of it. Totals of many batches are not.
    """
    marker = pl.when(_begins(loader)).then(True).when(pl.col("part").is_in(list(COMPUTE_PARTS))).then(False)
    is_first = marker.forward_fill().fill_null(False) & ~pl.col("estimated")
    is_wait = _own(loader) & (pl.col("operation") == "data")
    within = pl.when(pl.col("part") != "gc").then(is_wait).forward_fill().fill_null(False)
    return within & is_first


def _own(loader: LoaderUse) -> pl.Expr:
    return (pl.col("part") == "data") & (pl.col("name") == loader.name)
