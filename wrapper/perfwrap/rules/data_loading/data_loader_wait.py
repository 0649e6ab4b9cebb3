"""The training thread waits for its next batch, and no other rule explains why.

What it finds
    Waits for a DataLoader during at least 2 % of the training loop that no other rule explains.

Why it costs
    While the thread waits, it launches no work; a GPU becomes idle once its queue is empty.

How the gain is estimated
    Measured: the wait for batches in the step account. At best all of it disappears. At worst only the part that
    workers can overlap on the usable cores; if all cores are already busy, nothing. Without workers, a
    simulation predicts the step; this is only an option if its whole range gains 3 %.

How to fix
    If cores are free, use more workers: enough to make batches as fast as the rest of the step needs them. If all cores
    are busy, make each sample cheaper: decode faster, cache, use vectorized transforms or the GPU.

When it is wrong
    When a few slow batches cause most of the wait (a first epoch that fills the page cache, a network file system that
    stalled): compare p99 with the median. Receiving batches that were ready is not counted if other programs used the
    CPU; otherwise it is reported as such, and only as a note below a third of the loop.
"""

from __future__ import annotations

import math

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.loop_figures import mean_step_ns
from perfwrap.measures.account.what_if import HALF, NOTHING, without
from perfwrap.measures.data_loading.loaders import LoaderUse, find_loaders
from perfwrap.measures.data_loading.worker_need import MIN_GAIN, measured_step, saved
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.host.processors import find_processors
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.data_loading import _batch_time as making
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, Option, locate, named

NEEDS = ("data", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    receiving_share: float = 0.5
    """Share of the waits from which they count as receiving, if batches were ready."""
    receiving_problem_share: float = 1 / 3
    """Share of the loop from which receiving is more than a note: it can be reduced, but never to zero."""
    min_busy_share: float = 0.9
    """Share of the usable cores in use from which more workers cannot run in parallel; the same figure as for
    workers."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for waits for the training DataLoaders."""
    loaders = [loader for loader in evidence.get(find_loaders, trainer) if loader.training]
    shares = [(loader, making.late_share(evidence, trainer, loader)) for loader in loaders]
    found = [
        (_receiving if share - loader.late_share > limits.receiving_share * share else _finding)(
            evidence, trainer, loader, share, limits
        )
        for loader, share in shares
        if share >= limits.min_reported_share
    ]
    if found:
        return found
    if not loaders:
        return Clear("No DataLoader feeds the training.")
    return Clear(f"Waits for batches take {units.share(sum(share for _, share in shares))} of the loop.")


def _receiving(
    evidence: Evidence, trainer: Trainer, loader: LoaderUse, share: float, limits: Limits
) -> Finding:
    """Return the finding about a loader whose batches were mostly ready: the cost is receiving them."""
    step_ns = mean_step_ns(evidence, trainer)
    where = named("the DataLoader", loader.created)
    received_ns = loader.wait_ns / max(1, loader.batches)
    step = measured_step(evidence, trainer, loader)
    alone = saved(step, 0) if step is not None else (1.0, 1.0)
    cheap = alone[1] <= 1.0 - MIN_GAIN
    made = (
        f"aking a batch takes {units.duration(loader.fetch_ns)}, receiving it {units.duration(received_ns)}"
    )
    in_training = Option(f"Pass num_workers=0 to {where}.", alone, f"m{made}", "workers=0", f"M{made}.")
    fewer = Option(
        f"Send fewer or smaller batches: larger batches in {where}, or fewer tensors per batch.",
        (1.0 - share, 1.0),
        f"{units.duration(loader.median_wait_ns)} to receive a batch",
        None if cheap else "cached-batch",
    )
    return Finding(
        title=f"{SHARE} of the training loop receives batches of {where} that were already ready.",
        share=share,
        evidence=(
            f"Receiving a batch from a worker takes {units.duration(loader.median_wait_ns)} (median) with "
            f"{_setting(loader)}; the rest of the step takes {units.duration((1.0 - loader.share) * step_ns)}.",
            f"Waits for batches that are not ready take {units.share(loader.late_share)} of the loop.",
        ),
        options=(in_training, fewer) if cheap else (fewer,),
        verdict="data-bound" if share >= limits.receiving_problem_share else None,
        location=locate(loader.created),
        confidence="inferred",
        claims=making.waits(loader),
        informational=share < limits.receiving_problem_share,
    )


def _finding(
    evidence: Evidence, trainer: Trainer, loader: LoaderUse, share: float, limits: Limits
) -> Finding:
    """Return the finding about one loader."""
    step_ns = mean_step_ns(evidence, trainer)
    rest_ns = (1.0 - loader.share) * step_ns
    where = named("the DataLoader", loader.created)
    cores = evidence.get(find_processors, trainer)
    busy = cores.busy if cores.busy is not None else cores.tree_busy
    full = bool(cores.usable and busy is not None and busy >= limits.min_busy_share * cores.usable)
    needed = _needed(loader, rest_ns)
    more = needed if needed and not full and (cores.usable is None or needed <= cores.usable) else None
    waits = f"{units.duration(loader.median_wait_ns)} (median), {units.duration(loader.p99_wait_ns)} (p99)"
    words = [
        f"A step waits {units.duration(loader.share * step_ns)} for data, and the rest of the step takes "
        f"{units.duration(rest_ns)}.",
        f"One wait takes {waits} with {_setting(loader)}.",
        *making.split(loader),
        *making.sampled(evidence, trainer, loader),
    ]
    if cores.usable is not None and busy is not None:
        own = "" if cores.tree_busy is None else f", {units.number(cores.tree_busy)} of them by this run"
        words.append(f"{units.number(busy)} of {units.number(cores.usable)} usable cores were busy{own}.")
    return Finding(
        title=f"{SHARE} of the training loop waits for batches of {where}.",
        share=share,
        evidence=tuple(words),
        options=_options(loader, where, share, more, full),
        verdict="data-bound",
        location=locate(loader.created),
        confidence="inferred",
        claims=making.waits(loader),
    )


def _needed(loader: LoaderUse, rest_ns: float) -> int | None:
    """Return how many workers keep up with the rest of a step, None if unknown."""
    if loader.fetch_ns is None or rest_ns <= 0 or not loader.workers:
        return None
    needed = math.ceil(loader.fetch_ns / rest_ns)
    return needed if needed > loader.workers else None


def _setting(loader: LoaderUse) -> str:
    """Return the setting of num_workers."""
    return "an unknown number of workers" if loader.workers is None else f"num_workers={loader.workers}"


def _options(loader: LoaderUse, where: str, share: float, more: int | None, full: bool) -> tuple[Option, ...]:
    """Return the ways to wait less."""
    cheaper = Option(
        f"Make the samples of {where} cheaper to load: cache what does not change, work on whole batches, decode at "
        "the size that you need.",
        without(share, NOTHING),
        "all usable cores are busy" if full else "",
        "cached-batch",
    )
    if not more:
        return (cheaper,)
    workers = Option(
        f"Pass num_workers={more} instead of {loader.workers} to {where}.",
        without(share, HALF),
        f"a worker takes {units.duration(loader.fetch_ns)} per batch",
        f"workers={more}",
    )
    return (workers, cheaper)
