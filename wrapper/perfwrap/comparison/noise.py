"""The change of the step time between two sides, and how much of it can be noise.

With several runs of a side, the noise is estimated from the spread between runs: a Student's t of the difference of the
means of the logarithms, with the pooled variance of both sides.

With one run of each side, the noise is estimated from the steps of the runs. Neighbouring steps are correlated (a busy
neighbour, a hot CPU), so they are not independent samples. For both runs two variances are added: that of a block
bootstrap, which keeps neighbours together (Künsch 1989; circular, Politis and Romano 1992), and the variance between
the eighths of a run, undivided: another run may differ from this one as one part of it differs from the next. On a
machine with a drifting speed it differs more (measured: equal runs of 3 and of 30 seconds on a virtual machine with
neighbours), so noise of more than 10 % counts double, up to 50 %. 2 % count as noise in any case, as for rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Values: TypeAlias = NDArray[np.float64]
Centre: TypeAlias = Callable[[Values], Values]
"""From rows of values to one value for each row."""

MIN_BLOCKS = 8
"""With fewer sections, their variance is unknown."""

PARTS = 8
"""Parts of a run that are compared with each other for its drift."""

RESAMPLES = 400

DEVIATIONS = 2.5
"""Standard deviations that count as noise. The two tails of a normal distribution beyond it are 1.2 %: two figures are
tested, and a deviation that is estimated from eight parts is itself uncertain. scripts/accuracy/compare_noise.py
measures it."""

MIN_FREEDOM = 2
"""Degrees of freedom from which the spread between runs is used: two runs of each side, or three and one."""

OUTSIDE = 0.025
"""Of Student's distribution, both tails together: two figures are judged, and five per cent are to be wrong at most."""

UNSTABLE = 0.10
"""Noise of single runs from which the machine's speed drifts, so that the next run may differ by more."""

UNSTABLE_FACTOR, UNSTABLE_NOISE = 2.0, 0.50
"""The factor for such noise, and its maximum. Of 31 pairs of equal runs, 5 were reported as different without it, and 1
with it; a higher maximum changes nothing of that, and would hide the effect of a good fix."""

MIN_NOISE = 0.02
"""Relative; the noise of a quiet machine from run to run."""


@dataclass(frozen=True)
class StepBlocks:
    """Mean step times of blocks with the same number of steps."""

    steps: int
    mean_ns: tuple[float, ...]


@dataclass(frozen=True)
class Change:
    """One figure of both sides. ``noise`` is relative: a ``ratio`` from 1 - noise to 1 + noise is no difference."""

    before_ns: float
    after_ns: float
    noise: float

    @property
    def ratio(self) -> float:
        """The value after divided by the value before."""
        return self.after_ns / self.before_ns

    @property
    def low(self) -> float:
        """The lower bound of the ratio."""
        return self.ratio * math.exp(-self._margin)

    @property
    def high(self) -> float:
        """The upper bound of the ratio."""
        return self.ratio * math.exp(self._margin)

    @property
    def is_real(self) -> bool:
        """Whether it is more than noise."""
        return abs(math.log(self.ratio)) > self._margin

    @property
    def _margin(self) -> float:
        """The noise of the ratio's logarithm."""
        return math.log1p(self.noise)


Side: TypeAlias = Sequence[StepBlocks]
"""One run, or repeated runs."""


def typical(before: Side, after: Side) -> Change | None:
    """Compare the typical step: the median over sections. None if there are too few of them."""
    return _change(before, after, _median)


def whole(before: Side, after: Side) -> Change | None:
    """Compare the mean step, including the time between steps. None if there are too few steps."""
    return _change(before, after, _mean)


def _change(before: Side, after: Side, centre: Centre) -> Change | None:
    """Return the change of one figure of the steps; that of several runs is their geometric mean."""
    length = max(blocks.steps for blocks in (*before, *after))
    sides = [[_lengthened(blocks, length) for blocks in side] for side in (before, after)]
    runs = [run for side in sides for run in side]
    if min(run.size for run in runs) < MIN_BLOCKS or min(run.min() for run in runs) <= 0:
        return None
    old, new = ([float(np.log(centre(run[None, :])[0])) for run in side] for side in sides)
    within = sum(_bootstrapped(run, centre) / len(side) ** 2 for side in sides for run in side)
    if len(runs) - 2 >= MIN_FREEDOM:
        margin = max(DEVIATIONS * math.sqrt(within), _between(old, new))
    else:
        drift = sum(_drift(run, centre) / len(side) ** 2 for side in sides for run in side)
        margin = DEVIATIONS * math.sqrt(within + drift)
        if margin > UNSTABLE:
            margin = max(margin, min(UNSTABLE_FACTOR * margin, math.log1p(UNSTABLE_NOISE)))
    noise = max(MIN_NOISE, math.expm1(margin))
    return Change(math.exp(np.mean(old)), math.exp(np.mean(new)), noise)


def _between(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the noise of the difference of the means, from the spread of the runs of each side."""
    freedom = len(before) + len(after) - 2
    squares = sum(float(np.square(np.subtract(side, np.mean(side))).sum()) for side in (before, after))
    deviation = math.sqrt(squares / freedom * (1 / len(before) + 1 / len(after)))
    return deviation * _student(freedom)


@cache
def _student(freedom: int) -> float:
    """Return the quantile of Student's distribution for OUTSIDE, from random draws; accurate to about 1 %."""
    draws = np.random.default_rng(0).standard_t(freedom, 400_000)
    return float(np.quantile(np.abs(draws), 1 - OUTSIDE))


def _lengthened(blocks: StepBlocks, steps: int) -> Values:
    """Return the means of longer sections; both lengths are powers of two."""
    together = steps // blocks.steps
    values = np.asarray(blocks.mean_ns, dtype=np.float64)
    count = values.size // together
    return np.asarray(values[: count * together].reshape(count, together).mean(axis=1))


def _bootstrapped(values: Values, centre: Centre) -> float:
    """Return the variance of the centre's logarithm, by a circular block bootstrap with a fixed seed."""
    length = round(math.sqrt(values.size))
    blocks = -(-values.size // length)
    starts = np.random.default_rng(0).integers(0, values.size, (RESAMPLES, blocks, 1))
    chosen = (starts + np.arange(length)) % values.size
    resampled = values[chosen.reshape(RESAMPLES, -1)[:, : values.size]]
    return float(np.log(centre(resampled)).var(ddof=1))


def _drift(values: Values, centre: Centre) -> float:
    """Return the variance of the centre's logarithm between the parts of a run."""
    parts: Sequence[Values] = np.array_split(values, PARTS)
    return float(np.log([float(centre(part[None, :])[0]) for part in parts]).var(ddof=1))


def _median(rows: Values) -> Values:
    """Return the median of each row."""
    return np.asarray(np.median(rows, axis=1))


def _mean(rows: Values) -> Values:
    """Return the mean of each row."""
    return np.asarray(rows.mean(axis=1))
