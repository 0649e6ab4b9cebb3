"""The largest batch that fits, by doubling and then halving the distance, with the throughput at each size.

Memory is the limit, of the GPU or of the machine, and it is met by really running out of it: each size is a process of
its own. What the batch sampler cannot give (more than the data set holds) is a limit, too.
"""

from __future__ import annotations

from collections.abc import Callable

from perfwrap.experiments.plan import Planned
from perfwrap.experiments.trial import BatchSize, Run, Trial
from perfwrap.experiments.variants import parse

MARGIN = 0.1
"""Of the largest batch that fits: what longer samples, fragmentation and other people's processes take at times."""

CLOSE_ENOUGH = 1 / 8
"""The search ends when what fits and what does not are this close, as a share of what does not: about the margin."""

MOST_DOUBLINGS = 10


def search(trial: Trial) -> BatchSize:
    """Search from the program's own batch size on; the trial has its baseline."""
    reading = trial.baseline.reading
    most = reading.dataset_length
    return find(reading.batch_size or 1, most, lambda size: _fits(trial, size))


def find(start: int, most: int | None, fits: Callable[[int], str]) -> BatchSize:
    """Return the largest size from ``start`` up to ``most`` that fits; ``fits`` says why not, or nothing."""
    largest, smallest, reason = start, None, ""
    size = start
    for _ in range(MOST_DOUBLINGS):
        size = 2 * size if most is None else min(2 * size, most)
        if size <= largest:
            return BatchSize(largest, None, "the data set holds no more samples", largest)
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
        return BatchSize(largest, None, f"not tried beyond {MOST_DOUBLINGS} doublings", largest)
    return BatchSize(largest, smallest, reason, max(1, int(largest * (1 - MARGIN))))


def _fits(trial: Trial, size: int) -> str:
    """Run with batches of that size; return why that did not work, or nothing."""
    if trial.interrupted:
        return "interrupted"
    name = f"batch-size={size}"
    trial.measure([Planned(parse(name))], repeats=1)
    run: Run = next(run for run in reversed(trial.runs) if run.name == name)
    status, reason = run.reading.status, run.reading.reason
    return "" if status == "measured" else f"{status}: {reason}"
