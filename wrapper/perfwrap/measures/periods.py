"""Whether slow steps come every so many steps, or as chance would have it.

Under chance, how many of the slow steps fall on one place of a period is hypergeometric; of all periods and places that
are looked at, one would do so by accident, so that the probability is multiplied by their number (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, lgamma

import numpy as np
import polars as pl

from perfwrap.measures.loop_events import Integers

NEIGHBOURS = 4
"""A period is looked for among the distances of a slow step to so many later ones: others may lie between."""

NEGLIGIBLE = 1e-12
"""Of a sum of probabilities, what further terms are left out."""


def find_period(slow: Sequence[int], steps: pl.DataFrame, chance: float, regular: float) -> int | None:
    """Return after how many steps slow ones come again; None where chance may have made them so.

    ``slow`` are indices of ``steps``, a table of measures.steps, and steady and detailed. Programs count steps through
    the run or in each epoch anew. A share ``regular`` of the slow steps must lie on the period, of the period's steps
    as many must be slow, and the probability that chance does so with any period must be below ``chance``.
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
    """Return for each period on which the slow steps lie the probability that chance does so with any period."""
    most = ceil(regular * slow.size) - 1
    if most < 1:
        return {}
    # Shorter periods have too many places for so few slow steps, longer ones too few.
    shortest = max(2, int(steps.size / (slow.size / regular + 1)))
    longest = steps.size // most
    tried = sum(range(shortest, longest + 1))
    later = [slow[ahead:] - slow[:-ahead] for ahead in range(1, min(NEIGHBOURS, slow.size - 1) + 1)]
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
    """Return the probability that of ``slow`` steps among ``steps``, by chance, so many fall on ``slots`` of them."""
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
