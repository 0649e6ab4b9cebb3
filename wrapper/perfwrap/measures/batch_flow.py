"""The times of making single batches and of using them, one after the other: what a queue has to even out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from perfwrap.measures.account import Account
from perfwrap.measures.batch_making import workers_of
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.loop_events import Flags, Integers
from perfwrap.measures.steps import Steps
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.worker_need import MOST_PREFETCH, enough_prefetch, played
from perfwrap.timeline.model import Timeline

ENOUGH = 20
"""Batches from which their sequence is played; as many as steady steps are wanted for a verdict."""
FITS = (0.7, 1.4)
"""The played step over the measured one: outside of it the play is of something else, and nothing is concluded."""


@dataclass(frozen=True)
class BatchFlow:
    """A loader with workers, played with the measured times; mean nanoseconds per batch."""

    measured_ns: float
    """From asking for one batch to asking for the next."""
    now_ns: float
    """As played with today's workers and prefetch."""
    even_ns: float
    """If each batch took as long as all do on average."""
    usual_ns: float
    """If each batch took as long as the median one."""
    rest_ns: float
    """What a batch takes that is ready when it is asked for: receiving and using it."""
    prefetch: int
    """The smallest prefetch factor that is about as good as any."""
    deeper_ns: float
    """With that one."""


def find_batch_flow(
    timeline: Timeline, trainer: Trainer, steps: Steps, account: Account, loader: LoaderUse
) -> BatchFlow | None:
    """Return how a loader's batches flow; None where too few stand in detail or the play is not true to them."""
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
    rests, waits = _uses(timeline, steps, own.filter(inside, operation="data"), loader.name, starts)
    if min(len(fetches), len(rests)) < ENOUGH:
        return None
    prefetch = loader.prefetch_factor or 2
    measured = float(np.mean(rests) + np.mean(waits))
    now = played(fetches, rests, loader.workers, prefetch)
    if not FITS[0] <= now / measured <= FITS[1]:
        return None
    even, usual = (
        played([float(middle(fetches))] * len(fetches), rests, loader.workers, prefetch)
        for middle in (np.mean, np.median)
    )
    sizes = sorted({prefetch, *(size for size in _POWERS if size > prefetch)})
    found, deeper = enough_prefetch(fetches, rests, loader.workers, sizes)
    return BatchFlow(measured, now, even, usual, float(np.mean(rests)), found, deeper)


_POWERS = tuple(1 << power for power in range(1, MOST_PREFETCH.bit_length()))


def _fetches(
    timeline: Timeline, trainer: Trainer, account: Account, name: str, starts: tuple[Integers, Integers]
) -> list[float]:
    """Return what each batch took to make, in the order in which workers began them."""
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
    """Return the times from one batch to the next question and the waits, where both stand in detail.

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
    """Return from when to when each epoch's first batch is made: no queue reaches over the end of an epoch."""
    begins = own["operation"].is_in(["loader_start", "data_end"]).to_numpy()[:-1]
    first = np.flatnonzero(begins & (own["operation"] == "data").to_numpy()[1:])
    start, end = own["start"].to_numpy(), (own["start"] + own["duration"]).to_numpy()
    return start[first], end[first + 1]


def _among(moments: Integers, intervals: tuple[Integers, Integers]) -> Flags:
    """Say which moments lie in one of the intervals, which stand in order."""
    start, end = intervals
    if not len(start):
        return np.zeros(len(moments), dtype=bool)
    place = np.searchsorted(start, moments, side="right") - 1
    return np.asarray((place >= 0) & (moments <= end[np.maximum(place, 0)]))
