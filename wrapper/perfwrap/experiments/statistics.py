"""The ratio of two step times with its confidence interval, from runs that took turns on one machine.

Two things make a measured mean uncertain. Steps differ within a run, in stretches: that is bootstrapped by resampling
blocks of steps (Künsch 1989, "The jackknife and the bootstrap for general stationary observations"). And a process
that is started again is as a whole somewhat faster or slower: with two or three runs of each kind there is nothing to
resample, so that spread is taken from all repeats together and drawn from a t distribution. It holds what the steps
explain already, so the wider of the two intervals is told. The mean of a step, not
its median, is compared: what happens in every tenth step costs time, too, and no median sees it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DRAWS = 4000
"""Bootstrap draws: the ends of a 95 % interval then move by about 2 % of its width from one seed to another."""

MOST_BLOCKS = 400
"""Longer runs are summed up to so many stretches first, which changes no mean and bounds memory."""

SHARE_OF_A_BLOCK = 0.1
"""A block spans a tenth of a run, or whole periods of what comes back: ten blocks or so remain."""

PERIODIC = 0.5
"""Steps come back from this autocorrelation on: more of a step is then told by its place in the period than not."""

OUTSIDE = 0.025
"""On each side of a 95 % interval."""


@dataclass(frozen=True)
class Ratio:
    """A step's time over the baseline's; ``low`` and ``high`` are None where no repeat told how much runs differ."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Turn:
    """One run in the order in which they were made: whose it was and how long each of its steps took."""

    name: str
    steps_ns: Floats


def ratio(turns: Sequence[Turn], name: str, baseline: str, seed: int = 0) -> Ratio | None:
    """Return the ratio of a variant over the baseline; None where either was not measured.

    Each run of the variant is compared with the baseline's run before and the one after it, so that a machine that
    drifts is taken out.
    """
    weights = _weights(turns, name, baseline)
    if weights is None:
        return None
    used = [turn for turn, weight in zip(turns, weights, strict=True) if weight]
    shares = weights[weights != 0]
    middle = float(sum(share * _log_mean(turn) for share, turn in zip(shares, used, strict=True)))
    spread, freedom = run_spread(turns)
    if not freedom:
        return Ratio(math.exp(middle), None, None)
    random = np.random.default_rng(seed)
    within = shares @ np.stack([_draws(turn.steps_ns, random) for turn in used])
    between = spread * math.sqrt(float(np.square(shares).sum())) * random.standard_t(freedom, DRAWS)
    ends = [np.quantile(draws, [OUTSIDE, 1 - OUTSIDE]) for draws in (within, middle + between)]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    return Ratio(math.exp(middle), math.exp(min(low, middle)), math.exp(max(high, middle)))


def run_spread(turns: Sequence[Turn]) -> tuple[float, int]:
    """Return by how much repeats of the same differ (the standard deviation of the logarithm), and its freedom."""
    squares, freedom = 0.0, 0
    for name in {turn.name for turn in turns}:
        means = np.array([_log_mean(turn) for turn in turns if turn.name == name])
        squares += float(np.square(means - means.mean()).sum())
        freedom += means.size - 1
    return (math.sqrt(squares / freedom) if freedom else 0.0), freedom


def _weights(turns: Sequence[Turn], name: str, baseline: str) -> Floats | None:
    """Return what each run counts in the logarithm of the ratio: the variant's 1 together, the baseline's -1."""
    own = [place for place, turn in enumerate(turns) if turn.name == name]
    others = [place for place, turn in enumerate(turns) if turn.name == baseline]
    if not own or not others:
        return None
    weights = np.zeros(len(turns))
    for place in own:
        weights[place] += 1 / len(own)
        before = [other for other in others if other < place][-1:]
        after = [other for other in others if other > place][:1]
        for other in before + after:
            weights[other] -= 1 / len(own) / len(before + after)
    return weights


def _log_mean(turn: Turn) -> float:
    """Return the logarithm of the mean step."""
    return math.log(float(turn.steps_ns.mean()))


def _draws(steps_ns: Floats, random: np.random.Generator) -> Floats:
    """Return draws of the logarithm of the mean, with blocks of consecutive steps put together anew."""
    stretches = _summed_up(steps_ns)
    size = stretches.size
    period = _period(stretches)
    length = period * max(1, round(size * SHARE_OF_A_BLOCK / period))
    count = math.ceil(size / length)
    # The sums of all blocks at once; the last ones go round to the beginning.
    total = np.concatenate([[0.0], np.cumsum(np.concatenate([stretches, stretches[: length - 1]]))])
    blocks = (total[length:] - total[:-length]) / length
    chosen = random.integers(0, blocks.size, size=(DRAWS, count))
    return np.asarray(np.log(blocks[chosen].mean(axis=1)))


def _period(steps_ns: Floats) -> int:
    """Return after how many steps the same comes back (a checkpoint, a burst of batches); 1 where nothing does."""
    apart = steps_ns - steps_ns.mean()
    most = steps_ns.size // 3
    whole = float(np.square(apart).sum())
    if most < 2 or not whole:
        return 1
    likeness = np.array([float((apart[lag:] * apart[:-lag]).sum()) / whole for lag in range(1, most + 1)])
    # What merely lasts is most like the very next step.
    best = int(np.argmax(likeness))
    return best + 1 if likeness[best] >= PERIODIC else 1


def _summed_up(steps_ns: Floats) -> Floats:
    """Return the steps, or the means of so many stretches of equal length; a rest at the end is left out."""
    each = math.ceil(steps_ns.size / MOST_BLOCKS)
    whole = steps_ns.size // each * each
    return np.asarray(steps_ns[:whole].reshape(-1, each).mean(axis=1))
