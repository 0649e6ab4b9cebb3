"""A loader with workers, simulated with the measured times of single batches and with other prefetch queues."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from perfwrap.measures.data_loading.loader_inputs import BatchTimes, find_batch_times
from perfwrap.measures.data_loading.loader_simulation import Cores, Load, simulate
from perfwrap.measures.data_loading.loaders import LoaderUse
from perfwrap.measures.data_loading.worker_need import DEFAULT_PREFETCH, MIN_BATCHES, best_queue, sections
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer

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
    saving: tuple[float, float]
    """The step-time ratios with that prefetch_factor, best and worst, of parts of the loop."""


def find_batch_flow(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> BatchFlow | None:
    """Return the batch flow of a loader; None if too few were recorded in detail or the simulation does not match."""
    if not loader.workers:
        return None
    times = evidence.get(find_batch_times, trainer, loader)
    making, using = times.making, times.using
    if min(len(making), len(using)) < MIN_BATCHES:
        return None
    workers, prefetch = loader.workers, loader.prefetch_factor or DEFAULT_PREFETCH
    measured = float(np.mean(using) + np.mean(times.waits))
    now = _batch_ns(making, using, workers, prefetch)
    if not VALID_RATIO[0] <= now / measured <= VALID_RATIO[1]:
        return None
    even, usual = (
        _batch_ns([float(middle(making))] * len(making), using, workers, prefetch)
        for middle in (np.mean, np.median)
    )
    found = best_queue(lambda size: _batch_ns(making, using, workers, size), prefetch)
    deeper = _batch_ns(making, using, workers, found)
    ratios = [
        min(1.0, _batch_ns(*part, workers, found) / _batch_ns(*part, workers, prefetch))
        for part in _parts(times)
    ]
    return BatchFlow(
        measured, now, even, usual, float(np.mean(using)), found, deeper, (min(ratios), max(ratios))
    )


def _batch_ns(making: Sequence[float], using: Sequence[float], workers: int, prefetch: int) -> float:
    """Return the simulated time per batch. The measured times contain receiving, and competition for the cores."""
    count = min(len(making), len(using))
    load = Load(tuple(making), tuple(using), 0.0, 1.0, 0.0, 0.0, 0.0, 1_000_000)
    return simulate(load, Cores(None), workers, prefetch, count).batch_ns


def _parts(times: BatchTimes) -> list[tuple[Sequence[float], Sequence[float]]]:
    """Return the times of the whole loop and of its parts."""
    halves = zip(sections(times.making), sections(times.using), strict=False)
    return [(times.making, times.using), *halves]
