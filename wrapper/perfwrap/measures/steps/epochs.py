"""The epochs of a training loop and the samples of its steps, from its loaders."""

from __future__ import annotations

from bisect import bisect

import numpy as np
import polars as pl

from perfwrap.measures.account.loop_events import UNKNOWN, Integers, LoopEvents
from perfwrap.measures.steps.phases import DATA, FOREVER, TRAINED, Phases


def batches_of(events: LoopEvents, phases: Phases, ends: Integers) -> tuple[pl.Series, pl.Series]:
    """Return each step's epoch and samples, null if no loader shows them."""
    nothing = pl.Series([None] * ends.size, dtype=pl.Int64)
    epochs = _epochs(events, phases)
    if not epochs:
        return nothing, nothing
    begins = np.array([begin for begin, _ in epochs], dtype=np.int64)
    epoch = np.searchsorted(begins, ends) - 1
    counted = np.isin(phases.iteration, [iteration for _, iteration in epochs])
    batches = events.loader.only(counted & (events.loader_kind == DATA))
    step = np.searchsorted(ends, batches.start, side="right")
    inside = step < ends.size
    total = np.bincount(step[inside], batches.value[inside], ends.size)
    known = np.bincount(step[inside], batches.value[inside] != UNKNOWN, ends.size)
    there = np.bincount(step[inside], minlength=ends.size)
    unknown = (there == 0) | (known < there)
    return (
        pl.Series(epoch).set(pl.Series(epoch < 0), None),
        pl.Series(total.astype(np.int64)).set(pl.Series(unknown), None),
    )


def _epochs(events: LoopEvents, phases: Phases) -> list[tuple[int, int]]:
    """Return the start and the number of each loader iteration that is an epoch, in order.

    These are the iterations of the loader with about the most batches, the one with most restarts first; and those of
    others (a loader created for each epoch) if they do not run at the same time (the second loader of a zip).
    """
    size = int(phases.iteration.max(initial=-1)) + 1
    begin, end, key = np.full(size, FOREVER), np.zeros(size, np.int64), np.zeros(size, np.int64)
    np.minimum.at(begin, phases.iteration, events.loader.start)
    np.maximum.at(end, phases.iteration, events.loader.end)
    key[phases.iteration] = events.loader.key
    trained = np.unique(phases.iteration[phases.use == TRAINED])
    is_batch = (phases.use == TRAINED) & (events.loader_kind == DATA)
    batches = np.bincount(events.loader.key[is_batch], minlength=len(events.names))[key]
    restarts = np.bincount(key[trained], minlength=len(events.names))[key]
    rare = 2 * batches < batches[trained].max(initial=0)
    order = np.lexsort((begin, -batches, -restarts, rare))
    kept: list[tuple[int, int, int]] = []
    for iteration in order[np.isin(order, trained)].tolist():
        span = (int(begin[iteration]), int(end[iteration]), iteration)
        place = bisect(kept, span)
        clear_before = place == 0 or kept[place - 1][1] <= span[0]
        clear_after = place == len(kept) or span[1] <= kept[place][0]
        if clear_before and clear_after:
            kept.insert(place, span)
    return [(start, iteration) for start, _, iteration in kept]
