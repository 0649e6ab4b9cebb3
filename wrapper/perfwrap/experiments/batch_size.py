"""Search for the largest batch that fits, by doubling and then bisection, with the throughput at each size.

The limit is the memory of the GPU or of the machine, and is found by running out of it: each size is a separate
process. The size of the data set is a limit as well.
"""

from __future__ import annotations

from collections.abc import Callable

from perfwrap.experiments.plan import Planned
from perfwrap.experiments.trial import BatchSize, Run, Trial
from perfwrap.experiments.variants import parse

MARGIN = 0.1
"""Share of the largest batch that is kept free for longer samples, fragmentation and other processes."""

CLOSE_ENOUGH = 1 / 8
"""The search ends when the sizes that fit and do not fit are this close, as a share of the latter."""

MAX_DOUBLINGS = 10


def search(trial: Trial) -> BatchSize:
    """Search from the program's own batch size on; the trial has its baseline."""
    reading = trial.baseline.reading
    return find(reading.batch_size or 1, reading.dataset_length, lambda size: _fits(trial, size))


def find(start: int, maximum: int | None, fits: Callable[[int], str]) -> BatchSize:
    """Return the largest size from ``start`` up to ``maximum`` that fits; ``fits`` returns why not."""
    largest, smallest, reason = start, None, ""
    size = start
    for _ in range(MAX_DOUBLINGS):
        size = 2 * size if maximum is None else min(2 * size, maximum)
        if size <= largest:
            return BatchSize(largest, None, "the data set has no more samples", largest)
        reason = fits(size)
        if reason:
            smallest = size
            break
        largest = size
    while smallest is not None and smallest - largest > max(1, CLOSE_ENOUGH * smallest):
        middle = (largest + smallest) // 2
        why = fits(middle)
        if why:
            smallest, reason = middle, why
        else:
            largest = middle
    if smallest is None:
        return BatchSize(largest, None, "larger sizes were not tried", largest)
    return BatchSize(largest, smallest, reason, max(1, int(largest * (1 - MARGIN))))


def _fits(trial: Trial, size: int) -> str:
    """Run with batches of that size; return why that failed, or an empty text."""
    if trial.interrupted:
        return "interrupted"
    name = f"batch-size={size}"
    trial.measure([Planned(parse(name))], repeats=1)
    run: Run = next(run for run in reversed(trial.runs) if run.name == name)
    status, reason = run.reading.status, run.reading.reason
    return "" if status == "measured" else f"{status}: {reason}"
