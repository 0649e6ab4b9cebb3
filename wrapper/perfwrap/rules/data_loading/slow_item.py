"""Loading single samples is slow, and more workers do not help.

What it finds
    A DataLoader with workers that the training waits for during at least 2 % of the loop, where the samples
    (__getitem__, __getitems__ or __iter__ of the dataset, with its transforms) take at least half of the time of making
    a batch. If call stacks were sampled, also the hottest line.

Why it costs
    Every sample in every epoch has this cost. If the workers keep all cores busy, only cheaper samples make the loop
    faster.

How the gain is estimated
    Measured in the workers: the samples' part of making a batch. At best all of it disappears; a step then takes what
    its rest, its workers and the cores allow. The speed of the fixed code is unknown, so the lower bound is no gain;
    if the checked items are the same bytes in each epoch and a cache of all of them fits in half of the memory, it is
    nine tenths of the gain in all epochs but the first.

How to fix
    Start with the hottest line. Decode once and cache; decode at the size that you need; work on whole tensors instead
    of Python loops; move transforms of whole batches to the GPU. `perfwrap run --py-spy` names the line.

When it is wrong
    When the samples cannot be made cheaper: then the loop needs more cores, or cores of another machine.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.lines import Line
from perfwrap.measures.data_loading.loaders import LoaderUse
from perfwrap.measures.data_loading.worker_need import Step
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.stacks import sampled_making
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.data_loading import _batch_time as making
from perfwrap.rules.data_loading import _caching as caching
from perfwrap.rules.data_loading import _fixes as fixes
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, Option, locate, named, place

NEEDS = ("data", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_samples_share: float = 0.5
    """The samples' share of making a batch from which they are the problem."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for loaders whose samples slow the workers down."""
    slow, largest, answer = making.held_up_by(evidence, trainer, _share, limits.min_samples_share)
    if answer is not None:
        return answer
    found = [_finding(evidence, trainer, loader, step) for loader, step in slow]
    return found or Clear(f"The samples take {units.share(largest)} of making a batch.")


def _share(loader: LoaderUse) -> float:
    """Return the samples' share of making a batch, 0 if not recorded."""
    if loader.making is None or not loader.making.getitem_ns:
        return 0.0
    return loader.making.getitem_ns / loader.making.fetch_ns


def _finding(evidence: Evidence, trainer: Trainer, loader: LoaderUse, step: Step) -> Finding:
    """Return the finding about one loader."""
    made = loader.making
    assert made is not None
    name = ".".join((made.getitem or "the dataset").removeprefix("__main__.").split(".")[-2:])
    where = named(name, made.getitem_line)
    hottest = _hottest(evidence, trainer, loader)
    best = min(1.0, step.cheaper(_share(loader)).range_with(step.workers)[0] / step.now_ns)
    return Finding(
        title=f"{SHARE} of the training loop waits for batches; {units.share(_share(loader))} of making a "
        f"batch is loading its samples in {where}.",
        share=loader.late_share,
        evidence=(
            f"A worker takes {units.duration(step.fetch_ns)} per batch with num_workers={step.workers}; a step takes "
            f"{units.duration(step.rest_ns)} without the wait.",
            *making.split(loader),
            *making.single(loader),
            *making.sampled(evidence, trainer, loader),
            *caching.sentences(evidence, trainer, loader),
        ),
        options=(
            Option(
                _advice(where, hottest),
                (best, 1.0),
                f"{units.share(_share(loader))} of making a batch",
                fixes.CEILING,
                "Cache what does not change, decode at the size that you need, work on whole tensors."
                + ("" if hottest else " `perfwrap run --py-spy` names its hottest line."),
            ),
            *fixes.caches(evidence, trainer, loader, step),
            *fixes.more_workers(loader, step),
        ),
        verdict="data-bound",
        location=locate(hottest or made.getitem_line or loader.created),
        confidence="inferred",
        claims=making.waits(loader),
    )


def _hottest(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> Line | None:
    """Return the user's line with the most stack samples, None without enough samples."""
    sampled = evidence.get(sampled_making, trainer, loader)
    return sampled.functions[0].line if sampled and sampled.functions else None


def _advice(where: str, hottest: Line | None) -> str:
    """Return what to change."""
    if hottest is None:
        return f"Make {where} cheaper."
    return f"Make {place(hottest, '')} cheaper, the hottest line of loading samples."
