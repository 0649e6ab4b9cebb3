"""Search for the largest batch that fits, by doubling and then bisection, with the throughput at each size.

The limit is the memory of the GPU or of the machine, and is found by running out of it: each size is a separate
process. The size of the data set is a limit as well. On a CPU, memory is rarely the limit: there the search also ends
when larger batches give no more samples per second.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from perfwrap import units
from perfwrap.experiments.plan import Planned
from perfwrap.experiments.reading import Reading
from perfwrap.experiments.trial import BatchSize, Trial
from perfwrap.experiments.variants import parse

MARGIN = 0.1
"""Share of the largest batch that is kept free for longer samples, fragmentation and other processes."""

CLOSE_ENOUGH = 1 / 8
"""The search ends when the sizes that fit and do not fit are this close, as a share of the latter."""

MAX_DOUBLINGS = 10

STEPS = 10
"""Measured steps of each run: enough for memory, and for the samples per second within some percent."""

NO_FASTER = 1.03
"""Two doublings that give fewer samples per second than this factor end the search on a CPU."""

CPU_SECONDS, GPU_SECONDS = 50.0, 600.0
"""The default of ``--max-time`` for this search."""

NOT_TRIED = "larger sizes were not tried"


class Fit(Struct, frozen=True):
    """Whether a size fits: None if that is unknown, and then larger ones are not tried either; and why not."""

    fits: bool | None
    reason: str = ""
    samples_per_s: float | None = None


def search(trial: Trial, began_s: float, max_time_s: float | None) -> BatchSize:
    """Search from the program's own batch size on; the trial has its baseline, and began then (monotonic clock)."""
    reading = trial.baseline.reading
    on_gpu = reading.peak_bytes is not None
    limit_s = max_time_s or (GPU_SECONDS if on_gpu else CPU_SECONDS)
    end_s = began_s + limit_s
    rates = {reading.batch_size or 1: _rate(reading)}

    def fits(size: int) -> Fit:
        if not on_gpu and _is_no_faster(list(rates.values())):
            return Fit(None, "larger batches give no more samples per second")
        fit = _fits(trial, size, end_s, limit_s)
        if fit.fits:
            rates[size] = fit.samples_per_s
        return fit

    found = find(reading.batch_size or 1, reading.dataset_length, fits)
    known = {size: rate for size, rate in rates.items() if rate}
    return replace(found, fastest=max(known, key=lambda size: known[size], default=None))


def find(start: int, maximum: int | None, fits: Callable[[int], Fit]) -> BatchSize:
    """Return the largest size from ``start`` up to ``maximum`` that fits."""
    largest, size = start, start
    failed: Fit | None = None
    smallest = None
    for _ in range(MAX_DOUBLINGS):
        size = 2 * size if maximum is None else min(2 * size, maximum)
        if size <= largest:
            return BatchSize(largest, None, "the data set has no more samples", largest)
        found = fits(size)
        if found.fits is None:
            return BatchSize(largest, None, found.reason, largest)
        if not found.fits:
            smallest, failed = size, found
            break
        largest = size
    if smallest is None or failed is None:
        return BatchSize(largest, None, NOT_TRIED, largest)
    while smallest - largest > max(1, CLOSE_ENOUGH * smallest):
        middle = (largest + smallest) // 2
        found = fits(middle)
        if found.fits is None:
            break
        if found.fits:
            largest = middle
        else:
            smallest, failed = middle, found
    return BatchSize(largest, smallest, failed.reason, max(1, int(largest * (1 - MARGIN))))


def _fits(trial: Trial, size: int, end_s: float, limit_s: float) -> Fit:
    """Run with batches of that size."""
    left_s = end_s - time.monotonic()
    too_long = f"{NOT_TRIED} within {units.duration(limit_s * 1e9)} (--max-time)"
    if left_s <= 0:
        return Fit(None, too_long)
    reading = trial.run_alone(Planned(parse(f"batch-size={size}")), left_s)
    if reading is None:
        return Fit(None, NOT_TRIED)
    if reading.status == "measured":
        return Fit(True, samples_per_s=_rate(reading))
    if reading.status == "hung" and time.monotonic() >= end_s:
        return Fit(None, too_long)
    return Fit(False, f"{reading.status}: {reading.reason}")


def _rate(reading: Reading) -> float | None:
    """Return the samples per second of a run; None if the sizes of its batches are unknown."""
    samples, duration_ns = int(reading.steps.samples.sum()), int(reading.steps.duration_ns.sum())
    return samples / duration_ns * 1e9 if samples and duration_ns else None


def _is_no_faster(rates: list[float | None]) -> bool:
    """Return whether the last two doublings gave no more samples per second."""
    last = rates[-3:]
    known = [rate for rate in last if rate]
    return len(last) == len(known) == 3 and max(known[1:]) < NO_FASTER * known[0]
