"""The times of making and using single batches, in order: the variation that a prefetch queue must absorb."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.loop_events import Flags, Integers
from perfwrap.measures.data_loading.batch_making import workers_of
from perfwrap.measures.data_loading.loaders import LoaderUse
from perfwrap.measures.data_loading.worker_need import MAX_PREFETCH, enough_prefetch, simulated_step
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.steps import Steps, find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline

MIN_BATCHES = 20
"""Batches needed for a simulation; the same as steady steps for a verdict."""
VALID_RATIO = (0.7, 1.4)
"""Simulated step over measured step; outside this range the simulation does not describe the loader."""


class BatchFlow(Struct, frozen=True):
    """A loader with workers, simulated with the measured times; mean nanoseconds per batch."""

    measured_ns: float
    """Measured: from one request for a batch to the next."""
    now_ns: float
    """Simulated with the present workers and prefetch_factor."""
    even_ns: float
    """If every batch took the mean time."""
    usual_ns: float
    """If every batch took the median time."""
    rest_ns: float
    """A batch that is ready when it is requested: receiving and using it."""
    prefetch: int
    """The smallest prefetch_factor that is about as good as any."""
    deeper_ns: float
    """With that prefetch_factor."""


def find_batch_flow(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> BatchFlow | None:
    """Return the batch flow of a loader; None if too few were recorded in detail or the simulation does not match."""
    timeline = evidence.timeline
    account = evidence.get(find_account, trainer)
    if not loader.workers:
        return None
    own = timeline.spans.filter(
        pl.col("track") == trainer.thread,
        pl.col("operation").is_in(["data", "data_end", "loader_start"]),
        pl.col("name") == loader.name,
    ).sort("start")
    starts = _epoch_starts(own)
    fetches = _fetches(timeline, trainer, account, loader.name, starts)
    inside = pl.col("start").is_between(account.start, account.end, closed="left")
    rests, waits = _uses(
        timeline, evidence.get(find_steps, trainer), own.filter(inside, operation="data"), loader.name, starts
    )
    if min(len(fetches), len(rests)) < MIN_BATCHES:
        return None
    prefetch = loader.prefetch_factor or 2
    measured = float(np.mean(rests) + np.mean(waits))
    now = simulated_step(fetches, rests, loader.workers, prefetch)
    if not VALID_RATIO[0] <= now / measured <= VALID_RATIO[1]:
        return None
    even, usual = (
        simulated_step([float(middle(fetches))] * len(fetches), rests, loader.workers, prefetch)
        for middle in (np.mean, np.median)
    )
    sizes = sorted({prefetch, *(size for size in _POWERS if size > prefetch)})
    found, deeper = enough_prefetch(fetches, rests, loader.workers, sizes)
    return BatchFlow(measured, now, even, usual, float(np.mean(rests)), found, deeper)


_POWERS = tuple(1 << power for power in range(1, MAX_PREFETCH.bit_length()))


def _fetches(
    timeline: Timeline, trainer: Trainer, account: Account, name: str, starts: tuple[Integers, Integers]
) -> list[float]:
    """Return the time to make each batch, in the order in which workers started them."""
    processes = workers_of(timeline, trainer, name)
    threads = timeline.tracks.filter(pl.col("kind") == "thread", pl.col("parent").is_in(processes))
    spans = timeline.spans.filter(
        pl.col("track").is_in(threads["id"].to_list()),
        pl.col("operation") == "fetch",
        pl.col("start").is_between(account.start, account.end, closed="left"),
    ).sort("start")
    apart = ~_among(spans["start"].to_numpy(), starts)
    return [float(value) for value in spans["duration"].to_numpy()[apart]]


def _uses(
    timeline: Timeline, steps: Steps, waits: pl.DataFrame, name: str, starts: tuple[Integers, Integers]
) -> tuple[list[float], list[float]]:
    """Return the times from one batch to the next request and the waits, where both were recorded in detail.

    Receiving a batch belongs to its use: no queue makes it shorter.
    """
    start, took = waits["start"].to_numpy(), waits["duration"].to_numpy()
    queue = timeline.marks.filter(
        pl.col("name") == "queue", pl.col("detail") == name, pl.col("value") >= 1, pl.col("value") % 1 == 0
    )
    ready = np.isin(start, queue["time"].to_numpy())
    usual = float(np.median(took[ready])) if ready.any() else 0.0
    received = np.where(ready, took, np.minimum(took, usual))
    step = np.searchsorted(steps.table["end"].to_numpy(), start, side="right")
    near = (np.diff(step) <= 1) & ~_among(start, starts)[:-1] & ~_among(start, starts)[1:]
    uses = (start[1:] - start[:-1] - took[:-1] + received[:-1])[near]
    return uses.astype(float).tolist(), (took - received)[:-1][near].astype(float).tolist()


def _epoch_starts(own: pl.DataFrame) -> tuple[Integers, Integers]:
    """Return when each epoch's first batch is made, start and end: no queue spans the end of an epoch."""
    begins = own["operation"].is_in(["loader_start", "data_end"]).to_numpy()[:-1]
    first = np.flatnonzero(begins & (own["operation"] == "data").to_numpy()[1:])
    start, end = own["start"].to_numpy(), (own["start"] + own["duration"]).to_numpy()
    return start[first], end[first + 1]


def _among(moments: Integers, intervals: tuple[Integers, Integers]) -> Flags:
    """Return which moments are in one of the sorted intervals."""
    start, end = intervals
    if not len(start):
        return np.zeros(len(moments), dtype=bool)
    place = np.searchsorted(start, moments, side="right") - 1
    return np.asarray((place >= 0) & (moments <= end[np.maximum(place, 0)]))
