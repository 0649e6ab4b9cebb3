"""The ratio of two step times with its confidence interval, from alternating runs on one machine.

A measured mean has two uncertainties. Steps vary within a run and are correlated: this is bootstrapped by resampling
blocks of steps (Künsch 1989, "The jackknife and the bootstrap for general stationary observations"). And each new
process is as a whole somewhat faster or slower: two or three runs of each kind are too few to resample, so this spread
is estimated from all repeats together and drawn from a t distribution. It includes the variation of the steps, so the
wider of the two intervals is used. The mean step is compared, not the median: work in every tenth step costs time, too,
and the median does not show it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DRAWS = 4000
"""Bootstrap draws: with this number the ends of a 95 % interval vary by about 2 % of its width between seeds."""

MAX_BLOCKS = 400
"""Longer runs are first reduced to this many sections, which keeps the mean and limits memory."""

SHARE_OF_A_BLOCK = 0.1
"""A block is a tenth of a run, or whole periods: about ten blocks remain."""

PERIODIC = 0.5
"""Steps are periodic from this autocorrelation on: the position in the period then explains most of the variance."""

OUTSIDE = 0.025
"""On each side of a 95 % interval."""

DISTURBED_FACTOR, DISTURBED_SPREADS = 1.25, 5.0
"""A disturbed run differs from the median of its variant by this factor, and by this many of the usual spreads."""
MIN_TO_COMPARE = 3
"""Of two runs, neither is the odd one out."""
MIN_FOR_A_FAST_ONE = 4
"""Of three runs of which one is fast, the two others may be the disturbed ones: other programs only slow a run."""
MAD_TO_SIGMA = 1.4826
"""The standard deviation over the median absolute deviation, if values are normally distributed."""


class Ratio(Struct, frozen=True):
    """The step time over that of the baseline; ``low`` and ``high`` are None without repeats."""

    value: float
    low: float | None
    high: float | None


class TimedRun(Struct, frozen=True):
    """One run, in the order of execution: its variant and the durations of its steps."""

    name: str
    steps_ns: Floats


def ratio(runs: Sequence[TimedRun], name: str, baseline: str, seed: int = 0) -> Ratio | None:
    """Return the ratio of a variant over the baseline; None if either was not measured.

    Each run of the variant is compared with the baseline runs before and after it, which removes a drift of the
    machine.
    """
    weights = _weights(runs, name, baseline)
    if weights is None:
        return None
    used = [run for run, weight in zip(runs, weights, strict=True) if weight]
    shares = weights[weights != 0]
    middle = float(sum(share * _log_mean(run) for share, run in zip(shares, used, strict=True)))
    spread, freedom = run_spread(runs)
    if not freedom:
        return Ratio(math.exp(middle), None, None)
    random = np.random.default_rng(seed)
    within = shares @ np.stack([_draws(run.steps_ns, random) for run in used])
    between = spread * math.sqrt(float(np.square(shares).sum())) * random.standard_t(freedom, DRAWS)
    ends = [np.quantile(draws, [OUTSIDE, 1 - OUTSIDE]) for draws in (within, middle + between)]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    return Ratio(math.exp(middle), math.exp(min(low, middle)), math.exp(max(high, middle)))


def run_spread(runs: Sequence[TimedRun]) -> tuple[float, int]:
    """Return the standard deviation of the logarithm between repeats, and its degrees of freedom."""
    squares, freedom = 0.0, 0
    for name in {run.name for run in runs}:
        means = np.array([_log_mean(run) for run in runs if run.name == name])
        squares += float(np.square(means - means.mean()).sum())
        freedom += means.size - 1
    return (math.sqrt(squares / freedom) if freedom else 0.0), freedom


def disturbed(runs: Sequence[TimedRun]) -> list[int]:
    """Return the places of the runs that something else on the machine disturbed, in ascending order.

    Such a run is far from the median of its variant's runs, compared with the spread of the others: of three or more
    runs, if it is slower; of four or more, if it is faster.
    """
    apart: dict[int, float] = {}
    too_few: set[int] = set()
    for name in {run.name for run in runs}:
        places = [place for place, run in enumerate(runs) if run.name == name]
        if len(places) >= MIN_TO_COMPARE:
            means = np.array([_log_mean(runs[place]) for place in places])
            apart |= dict(zip(places, (means - np.median(means)).tolist(), strict=True))
            too_few |= set(places) if len(places) < MIN_FOR_A_FAST_ONE else set()
    if not apart:
        return []
    usual = MAD_TO_SIGMA * float(np.median(np.abs(list(apart.values()))))
    limit = max(math.log(DISTURBED_FACTOR), DISTURBED_SPREADS * usual)
    return sorted(
        place
        for place, distance in apart.items()
        if distance > limit or (-distance > limit and place not in too_few)
    )


def _weights(runs: Sequence[TimedRun], name: str, baseline: str) -> Floats | None:
    """Return the weight of each run in the logarithm of the ratio: 1 in total for the variant, -1 for the baseline."""
    own = [place for place, run in enumerate(runs) if run.name == name]
    others = [place for place, run in enumerate(runs) if run.name == baseline]
    if not own or not others:
        return None
    weights = np.zeros(len(runs))
    for place in own:
        weights[place] += 1 / len(own)
        before = [other for other in others if other < place][-1:]
        after = [other for other in others if other > place][:1]
        for other in before + after:
            weights[other] -= 1 / len(own) / len(before + after)
    return weights


def _log_mean(run: TimedRun) -> float:
    """Return the logarithm of the mean step."""
    return math.log(float(run.steps_ns.mean()))


def _draws(steps_ns: Floats, random: np.random.Generator) -> Floats:
    """Return draws of the logarithm of the mean, from resampled blocks of consecutive steps."""
    means = _summed_up(steps_ns)
    size = means.size
    period = _period(means)
    length = period * max(1, round(size * SHARE_OF_A_BLOCK / period))
    count = math.ceil(size / length)
    # The sums of all blocks at once; the last ones wrap around to the start.
    total = np.concatenate([[0.0], np.cumsum(np.concatenate([means, means[: length - 1]]))])
    blocks = (total[length:] - total[:-length]) / length
    chosen = random.integers(0, blocks.size, size=(DRAWS, count))
    return np.asarray(np.log(blocks[chosen].mean(axis=1)))


def _period(steps_ns: Floats) -> int:
    """Return the period of the steps (a checkpoint, a burst of batches); 1 if there is none."""
    apart = steps_ns - steps_ns.mean()
    most = steps_ns.size // 3
    whole = float(np.square(apart).sum())
    if most < 2 or not whole:
        return 1
    likeness = np.array([float((apart[lag:] * apart[:-lag]).sum()) / whole for lag in range(1, most + 1)])
    # Without a period, a step is most similar to the next one.
    best = int(np.argmax(likeness))
    return best + 1 if likeness[best] >= PERIODIC else 1


def _summed_up(steps_ns: Floats) -> Floats:
    """Return the steps, or the means of this many sections of equal length; a shorter rest is dropped."""
    each = math.ceil(steps_ns.size / MAX_BLOCKS)
    whole = steps_ns.size // each * each
    return np.asarray(steps_ns[:whole].reshape(-1, each).mean(axis=1))
