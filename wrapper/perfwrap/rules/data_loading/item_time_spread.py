"""A few samples take many times as long as the others, and the prefetch queue runs empty.

What it finds
    A DataLoader that the training waits for during at least 2 % of the loop, where slow samples (p99, or the longest
    one if p99 hides it) take at least five times the median, and where batches of equal time (the mean, or else the
    median) would remove at least half of the wait.

Why it costs
    Batches are delivered in order. A batch with a slow sample delays all batches after it until the queue is empty;
    fast batches cannot make up for that once the queue is full again. If the slow samples alone need more time than the
    workers have, no order of samples helps.

How the gain is estimated
    The loader's queue is simulated with the measured times of making and using each batch: once as recorded, once with
    every batch at the mean time, or at the median if the mean is already too long. The ratio of both is the upper
    bound; the lower bound is half of that gain.

How to fix
    Sort or bucket by size, so that large samples are not mixed with small ones; truncate, skip or preprocess samples
    that are far too slow, and use shorter timeouts for retried requests. A deeper queue (prefetch_factor) hides part of
    the rest; the advice gives its size from the same simulation.

When it is wrong
    When other programs used the workers' cores: such runs are not checked.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.data_loading.batch_flow import BatchFlow, find_batch_flow
from perfwrap.measures.data_loading.batch_making import SampleTimes
from perfwrap.measures.data_loading.loaders import LoaderUse
from perfwrap.measures.data_loading.worker_states import find_worker_states
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.data_loading import _batch_time as making
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, NotChecked, Option, locate, named

NEEDS = ("data", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_factor: float = 5.0
    """Slow sample over the median."""
    min_wait_share: float = 0.5
    """Share of the wait that equal batches must remove to count as the explanation."""
    min_gain_share: float = 0.5
    """Minimum part of the gain: no dataset is perfectly even."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for single slow samples that the training waits for."""
    loaders, answer = making.in_workers(evidence, trainer)
    if answer is not None:
        return answer
    calm = [loader for loader in loaders if not making.is_starved(evidence, trainer, loader)]
    if not calm:
        return NotChecked(making.BUSY_CPU)
    timed = [(loader, _widest(evidence, trainer, loader)) for loader in calm]
    known = [(loader, samples) for loader, samples in timed if samples is not None]
    if not known:
        return NotChecked("Needs the times of single samples; datasets with __getitems__ do not have them.")
    found = [
        _finding(loader, samples, flow, better_ns, limits)
        for loader, samples in known
        if _times(samples) >= limits.min_factor
        and (flow := evidence.get(find_batch_flow, trainer, loader)) is not None
        and (better_ns := _better_ns(flow, limits)) is not None
    ]
    most = units.times(max(_times(samples) for _, samples in known))
    return found or Clear(
        f"The slowest samples take {most} the median, but the training does not wait for them."
    )


def _widest(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> SampleTimes | None:
    """Return the sample times of the worker with the largest difference between samples."""
    states = evidence.get(find_worker_states, trainer, loader)
    return max((state.samples for state in states if state.samples), key=_times, default=None)


def _times(samples: SampleTimes) -> float:
    """Return how many times the median a slow sample takes; p99 may miss one in two hundred, a batch does not."""
    return samples.longest_ns / samples.median_ns if samples.median_ns else 1.0


def _better_ns(flow: BatchFlow, limits: Limits) -> float | None:
    """Return the time per batch without slow samples, if this removes most of the wait; else None."""
    waited = flow.measured_ns - flow.rest_ns
    return next(
        (
            ns
            for ns in (flow.even_ns, flow.usual_ns)
            if flow.now_ns - ns >= limits.min_wait_share * waited > 0
        ),
        None,
    )


def _finding(
    loader: LoaderUse, samples: SampleTimes, flow: BatchFlow, better_ns: float, limits: Limits
) -> Finding:
    """Return the finding about one loader."""
    where = named("the DataLoader", loader.created)
    line = None if loader.making is None else loader.making.getitem_line
    best = min(1.0, better_ns / flow.now_ns)
    is_even = better_ns == flow.even_ns
    deeper = flow.prefetch if flow.prefetch > (loader.prefetch_factor or 2) else None
    basis = f"{units.duration(better_ns)} instead of {units.duration(flow.now_ns)} per batch, simulated"
    return Finding(
        title=f"{SHARE} of the training loop waits for {where}: single samples take "
        f"{units.times(_times(samples))} as long as the median.",
        share=loader.late_share,
        evidence=(
            f"A sample takes {units.duration(samples.median_ns)} (median), {units.duration(samples.p99_ns)} (p99), "
            f"{units.duration(samples.longest_ns)} (maximum).",
            f"Simulated prefetch queue: one batch per {units.duration(flow.now_ns)} as recorded; with "
            f"{'equal batches of the same total' if is_even else 'no batch slower than the median'}, one per "
            f"{units.duration(better_ns)}.",
            *making.split(loader),
        ),
        options=(
            _even_out(
                named("the dataset", line),
                is_even,
                (best, 1.0 - limits.min_gain_share * (1.0 - best)),
                basis,
            ),
            *_deeper(loader, flow, deeper, where, limits),
        ),
        verdict="data-bound",
        location=locate(line or loader.created),
        confidence="inferred",
        claims=making.waits(loader),
    )


def _even_out(dataset: str, is_even: bool, saving: tuple[float, float], basis: str) -> Option:
    """Return what to change: the order of samples if that is enough, otherwise the slow samples themselves."""
    if is_even:
        return Option(
            f"Sort or bucket the samples of {dataset} by size.",
            saving,
            basis,
            "cached-batch",
            "Truncate or skip the few that are far too slow.",
        )
    return Option(
        f"Find out why a few samples of {dataset} are slow (a retried request, a much larger file, a cache miss).",
        saving,
        basis,
        "cached-batch",
        "Then preprocess, truncate or skip them, or use a shorter timeout. Another order of samples does not help.",
    )


def _deeper(
    loader: LoaderUse, flow: BatchFlow, deeper: int | None, where: str, limits: Limits
) -> tuple[Option, ...]:
    """Return the option to prefetch more batches, if a longer queue hides part of the wait."""
    if deeper is None or flow.deeper_ns >= flow.now_ns:
        return ()
    best = flow.deeper_ns / flow.now_ns
    return (
        Option(
            f"Pass prefetch_factor={deeper} to {where}, which hides part of the wait.",
            (best, 1.0 - limits.min_gain_share * (1.0 - best)),
            f"{units.duration(flow.deeper_ns)} instead of {units.duration(flow.now_ns)} per batch, simulated",
            f"prefetch={deeper}",
        ),
    )
