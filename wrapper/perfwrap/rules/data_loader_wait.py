"""The training thread waits for its next batch.

What it finds
    Waiting for a DataLoader during 2 % of the training loop or more, when no other rule explains that time.

Why it costs
    While the thread waits, nothing is launched; a GPU runs dry after what it still has queued.

How the saving is worked out
    Measured: the wait for batches, taken from the account of the step. At best all of it goes. At worst only
    what the workers can be made to overlap on the cores that the run may use; when all of them are busy
    already, that is nothing.

How to fix
    If cores are free, more workers: enough to make batches as fast as the rest of the step uses them. If
    they are not, the work per sample must become cheaper: decode faster, cache, use vectorised transforms or
    the GPU.

When it is wrong
    When one slow batch (a first epoch that fills the page cache, a network file system that stalled) stands
    for most of the wait: look at p99 beside the median. Where other programs kept the training from running, receiving
    batches that were ready is not counted; elsewhere it is told as that, and as a note below a third of the loop.
"""

from __future__ import annotations

import math

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.loop import mean_step_ns
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import HALF, NOTHING, without
from perfwrap.rules import making
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, locate, named

NEEDS = ("data", "steady_steps")

MOST_OF = 0.5
"""Part of the waits from which they are told as receiving, when batches were ready."""

LOUD_SHARE = 1 / 3
"""Share of the loop from which receiving is more than a note: it can be made less, and never nothing."""

BUSY_SHARE = 0.9
"""Share of the usable cores in use from which more workers only take turns; the catalogue's figure for
workers."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for exposed waits of the training loaders."""
    loaders = [loader for loader in evidence.loaders(trainer) if loader.training]
    shares = [(loader, making.late_share(evidence, trainer, loader)) for loader in loaders]
    found = [
        (_receiving if share - loader.late_share > MOST_OF * share else _finding)(
            evidence, trainer, loader, share
        )
        for loader, share in shares
        if share >= QUIET_SHARE
    ]
    if found:
        return found
    if not loaders:
        return Clear("No DataLoader fed the training.")
    return Clear(f"Waiting for batches takes {units.share(sum(share for _, share in shares))} of the loop.")


def _receiving(evidence: Evidence, trainer: Trainer, loader: LoaderUse, share: float) -> Finding:
    """Return the finding about a loader whose batches mostly lay ready: what is left is handing them over."""
    step_ns = mean_step_ns(evidence, trainer)
    where = named("the DataLoader", loader.created)
    cheap = loader.fetch_ns is not None and loader.fetch_ns <= loader.wait_ns / max(1, loader.batches)
    advice = f"Hand over less often or less: larger batches of {where}, or fewer tensors in each."
    if cheap:
        advice += f" Or pass num_workers=0: making one takes only {units.duration(loader.fetch_ns)}."
    return Finding(
        title=f"{SHARE} of the training loop is spent receiving batches of {where} that were ready.",
        share=share,
        saving=(1.0 - share, 1.0),
        evidence=(
            f"Taking a batch from its worker took {units.duration(loader.median_wait_ns)} as a median, with "
            f"{_setting(loader)}; the step takes {units.duration((1.0 - loader.share) * step_ns)} for all else.",
            f"Waiting for batches that were not ready takes {units.share(loader.late_share)} of the loop.",
        ),
        advice=advice,
        verdict="data-bound" if share >= LOUD_SHARE else None,
        location=locate(loader.created),
        experiment="workers=0" if cheap else "cached-batch",
        confidence="inferred",
        claims=making.waits(loader),
        benign=share < LOUD_SHARE,
    )


def _finding(evidence: Evidence, trainer: Trainer, loader: LoaderUse, share: float) -> Finding:
    """Return the finding about one loader."""
    step_ns = mean_step_ns(evidence, trainer)
    rest_ns = (1.0 - loader.share) * step_ns
    where = named("the DataLoader", loader.created)
    cores = evidence.processors(trainer)
    busy = cores.busy if cores.busy is not None else cores.tree_busy
    full = bool(cores.usable and busy is not None and busy >= BUSY_SHARE * cores.usable)
    needed = _needed(loader, rest_ns)
    more = needed if needed and not full and (cores.usable is None or needed <= cores.usable) else None
    waits = (
        f"{units.duration(loader.median_wait_ns)} as a median, {units.duration(loader.p99_wait_ns)} at p99"
    )
    words = [
        f"A step waits {units.duration(loader.share * step_ns)} for data and takes "
        f"{units.duration(rest_ns)} for all else.",
        f"One wait takes {waits}, with {_setting(loader)}.",
        *making.split(loader),
        *making.sampled(evidence, trainer, loader),
    ]
    if cores.usable is not None and busy is not None:
        own = "" if cores.tree_busy is None else f", {units.number(cores.tree_busy)} of them with this run"
        words.append(f"{units.number(busy)} of {units.number(cores.usable)} usable cores were busy{own}.")
    return Finding(
        title=f"{SHARE} of the training loop is spent waiting for batches of {where}.",
        share=share,
        saving=without(share, HALF if more else NOTHING),
        evidence=tuple(words),
        advice=_advice(loader, where, more, full),
        verdict="data-bound",
        location=locate(loader.created),
        experiment=f"workers={more}" if more else "cached-batch",
        confidence="inferred",
        claims=making.waits(loader),
    )


def _needed(loader: LoaderUse, rest_ns: float) -> int | None:
    """Return how many workers keep up with the rest of a step, None when nobody knows."""
    if loader.fetch_ns is None or rest_ns <= 0 or not loader.workers:
        return None
    needed = math.ceil(loader.fetch_ns / rest_ns)
    return needed if needed > loader.workers else None


def _setting(loader: LoaderUse) -> str:
    """Return the setting that matters."""
    return "an unknown number of workers" if loader.workers is None else f"num_workers={loader.workers}"


def _advice(loader: LoaderUse, where: str, more: int | None, full: bool) -> str:
    """Return what to change."""
    if more:
        return (
            f"Pass num_workers={more} instead of {loader.workers} to {where}: one batch takes a worker "
            f"{units.duration(loader.fetch_ns)}."
        )
    reason = "all usable cores are busy" if full else "more workers are not known to help"
    return (
        f"Make a sample of {where} cheaper to load ({reason}): cache what does not change, work on whole "
        "batches, decode at the size that is needed."
    )
