"""Whether slow steps are periodic or random.

If random, the number of slow steps at one position of a period is hypergeometric; among all periods and positions that
are tested, one would match by chance, so the probability is multiplied by their number (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, lgamma

import numpy as np
import polars as pl

from perfwrap.measures.account.loop_events import Integers

NEIGHBORS = 4
"""Periods are searched among the distances of a slow step to this many later ones, because others may lie between."""

NEGLIGIBLE = 1e-12
"""Further terms of a sum of probabilities are ignored below this share."""


def find_period(slow: Sequence[int], steps: pl.DataFrame, chance: float, regular: float) -> int | None:
    """Return after how many steps slow ones recur; None if they may be random.

    ``slow`` are indices of ``steps``, a table of measures.steps, and steady and detailed. Programs count steps through
    the run or in each epoch. At least a share ``regular`` of the slow steps must be on the period, as many of the
    period's steps must be slow, and the probability of this by chance with any period must be below ``chance``.
    """
    index, first = pl.col("index"), pl.col("index").min().over("epoch")
    counters = [index, index - first] if steps["epoch"].drop_nulls().n_unique() > 1 else [index]
    limit = chance / len(counters)
    found: dict[int, float] = {}
    for counter in counters:
        counted = steps.with_columns(counter.alias("counter")).filter("steady", "detailed")
        at = counted["counter"].to_numpy()
        slow_at = counted.filter(pl.col("index").is_in(list(slow)))["counter"].to_numpy()
        found = {period: odds for period, odds in _odds(slow_at, at, regular).items() if odds < limit} | found
    return min(found, key=lambda period: found[period], default=None)


def _odds(slow: Integers, steps: Integers, regular: float) -> dict[int, float]:
    """Return for each period of the slow steps the probability of it by chance, with any period."""
    most = ceil(regular * slow.size) - 1
    if most < 1:
        return {}
    # Shorter periods have too many positions for so few slow steps, longer ones too few.
    shortest = max(2, int(steps.size / (slow.size / regular + 1)))
    longest = steps.size // most
    tried = sum(range(shortest, longest + 1))
    later = [slow[ahead:] - slow[:-ahead] for ahead in range(1, min(NEIGHBORS, slow.size - 1) + 1)]
    odds = {}
    for period in np.unique(np.concatenate(later)).tolist():
        if not shortest <= period <= longest:
            continue
        places, counts = np.unique(slow % period, return_counts=True)
        hits, place = int(counts.max()), places[counts.argmax()]
        slots = int(np.count_nonzero(steps % period == place))
        if hits >= regular * max(slow.size, slots):
            odds[period] = tried * _at_least(hits, slots, slow.size, steps.size)
    return odds


def _at_least(hits: int, slots: int, slow: int, steps: int) -> float:
    """Return the probability that, of ``slow`` steps among ``steps``, so many are on ``slots`` of them by chance."""
    total = 0.0
    for number in range(hits, min(slots, slow) + 1):
        term = exp(_ways(slots, number) + _ways(steps - slots, slow - number) - _ways(steps, slow))
        total += term
        if term < NEGLIGIBLE * total:
            break
    return total


def _ways(of: int, chosen: int) -> float:
    """Return the logarithm of the number of ways to choose so many."""
    if not 0 <= chosen <= of:
        return -np.inf
    return lgamma(of + 1) - lgamma(chosen + 1) - lgamma(of - chosen + 1)
