"""A few samples take many times as long as the others, and the queue runs dry behind them.

What it finds
    A DataLoader that the training waits for during 2 % of the loop or more, where a sample at p99, or the longest one
    where p99 hides it, takes five times the median or more, and where batches that all took the mean time, or else the
    median one, would remove at least half of the wait.

Why it costs
    Batches are handed over in order. A batch with a slow sample in it holds up all that come after it, until the
    queue of ready batches is empty; fast batches cannot make up for that once the queue is full again. Where the slow
    ones alone take more than the workers have, no order helps.

How the saving is worked out
    The measured times of making each batch and of using it are played through the loader's queue: once as they were,
    once with every batch at the mean time, or at the median where the mean is too long already. The ratio of both is
    the best case; at worst half of that gain is left.

How to fix
    Sort or bucket by size, so that large samples do not stand beside small ones; cut, skip or prepare what is far too
    slow, and give up sooner on what is asked for again. A deeper queue (prefetch_factor) hides what is left; the advice
    says how deep by the same play.

When it is wrong
    When other programs took the cores from the workers: such runs are not judged.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.batch_flow import BatchFlow
from perfwrap.measures.batch_making import SampleTimes
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.trainers import Trainer
from perfwrap.rules import making
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, NotChecked, locate, named

NEEDS = ("data", "steady_steps")

TIMES = 5.0
"""A slow sample over the median one; the catalogue's figure."""

LEAST_OF_WAIT = 0.5
"""Share of the wait that even batches must remove for their unevenness to be its explanation."""

KEPT = 0.5
"""The least part of the gain that is promised: no data set is perfectly even."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for single slow samples that the training waits for."""
    loaders, answer = making.in_workers(evidence, trainer)
    if answer is not None:
        return answer
    calm = [loader for loader in loaders if not making.denied(evidence, trainer, loader)]
    if not calm:
        return NotChecked(making.DENIED)
    timed = [(loader, _widest(evidence, trainer, loader)) for loader in calm]
    known = [(loader, samples) for loader, samples in timed if samples is not None]
    if not known:
        return NotChecked(
            "The times of single samples were not recorded (data sets with __getitems__ hide them)."
        )
    found = [
        _finding(loader, samples, flow, better_ns)
        for loader, samples in known
        if _times(samples) >= TIMES
        and (flow := evidence.batch_flow(trainer, loader)) is not None
        and (better_ns := _better_ns(flow)) is not None
    ]
    most = units.times(max(_times(samples) for _, samples in known))
    return found or Clear(
        f"The slowest samples take {most} the median; that is not what the training waits for."
    )


def _widest(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> SampleTimes | None:
    """Return the sample times of the worker in which they differ most."""
    states = evidence.worker_states(trainer, loader)
    return max((state.samples for state in states if state.samples), key=_times, default=None)


def _times(samples: SampleTimes) -> float:
    """Return how many times the median a slow sample takes; one in two hundred escapes p99, but not a batch."""
    return samples.longest_ns / samples.median_ns if samples.median_ns else 1.0


def _better_ns(flow: BatchFlow) -> float | None:
    """Return the time per batch if none were slow, where most of what is waited for goes with it; else None."""
    waited = flow.measured_ns - flow.rest_ns
    return next(
        (ns for ns in (flow.even_ns, flow.usual_ns) if flow.now_ns - ns >= LEAST_OF_WAIT * waited > 0), None
    )


def _finding(loader: LoaderUse, samples: SampleTimes, flow: BatchFlow, better_ns: float) -> Finding:
    """Return the finding about one loader."""
    where = named("the DataLoader", loader.created)
    line = None if loader.making is None else loader.making.getitem_line
    best = min(1.0, better_ns / flow.now_ns)
    is_even = better_ns == flow.even_ns
    deeper = flow.prefetch if flow.prefetch > (loader.prefetch_factor or 2) else None
    hides = (
        f" prefetch_factor={deeper} would hide part of it: {units.saving(flow.deeper_ns / flow.now_ns, 1.0)}."
        if deeper
        else ""
    )
    return Finding(
        title=f"{SHARE} of the training loop is spent waiting for {where}: single samples take "
        f"{units.times(_times(samples))} the time of a median one.",
        share=loader.late_share,
        saving=(best, 1.0 - KEPT * (1.0 - best)),
        evidence=(
            f"A sample takes {units.duration(samples.median_ns)} as a median, {units.duration(samples.p99_ns)} at p99 "
            f"and {units.duration(samples.longest_ns)} at most.",
            f"Played through the queue as recorded, a batch comes every {units.duration(flow.now_ns)}; with "
            f"{'even batches of the same total' if is_even else 'no batch slower than the median one'} it would every "
            f"{units.duration(better_ns)}.",
            *making.split(loader),
        ),
        advice=_advice(named("the data set", line), is_even) + hides,
        verdict="data-bound",
        location=locate(line or loader.created),
        experiment=f"prefetch={deeper}" if deeper else "cached-batch",
        confidence="inferred",
        claims=making.waits(loader),
    )


def _advice(dataset: str, is_even: bool) -> str:
    """Return what to change: the order of samples, where that is enough, or the slow ones themselves."""
    if is_even:
        return f"Even out the samples of {dataset}: sort or bucket by size, cut or skip the few that are far too slow."
    return (
        f"Find out why a few samples of {dataset} take so long (a request that is repeated, a file that is far larger, "
        "a cache that misses): prepare, cut or skip those, or give up sooner. No order of samples makes up for them."
    )
