"""How much longer or shorter a step takes in one run than in another, and how much of that noise alone can be.

Steps that follow each other are alike (a busy neighbour, a hot processor), so they are no independent samples. Two
things are therefore added up for both runs: a block bootstrap, which keeps neighbours together (Künsch 1989; circular,
Politis and Romano 1992), and the spread between the eighths of a run, undivided: another run may differ from this one
as a part of it differs from the next. Two per cent are noise in any case, as they are for rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Values: TypeAlias = NDArray[np.float64]
Centre: TypeAlias = Callable[[Values], Values]
"""From rows of values to one value for each row."""

LEAST_STRETCHES = 8
"""Fewer stretches tell nothing about how they vary."""

PARTS = 8
"""Parts of a run that are held against each other for its drift."""

RESAMPLES = 400

DEVIATIONS = 2.5
"""How many standard deviations noise is given. Two tails of a normal distribution beyond it are 1.2 %: two figures are
judged, and a deviation that is estimated from eight parts is itself uncertain. scripts/compare_noise.py measures it."""

LEAST_NOISE = 0.02
"""Relative; the noise of a quiet machine from run to run."""


@dataclass(frozen=True)
class Stretches:
    """Mean step times of stretches of equally many steps."""

    steps: int
    mean_ns: tuple[float, ...]


@dataclass(frozen=True)
class Change:
    """One figure of two runs. ``noise`` is relative: from 1 - noise to 1 + noise a ``ratio`` says nothing."""

    before_ns: float
    after_ns: float
    noise: float

    @property
    def ratio(self) -> float:
        """The later over the earlier."""
        return self.after_ns / self.before_ns

    @property
    def low(self) -> float:
        """The least that the ratio may really be."""
        return self.ratio * math.exp(-self._margin)

    @property
    def high(self) -> float:
        """The most that it may be."""
        return self.ratio * math.exp(self._margin)

    @property
    def is_real(self) -> bool:
        """Whether it is more than noise."""
        return abs(math.log(self.ratio)) > self._margin

    @property
    def _margin(self) -> float:
        """The noise of the ratio's logarithm."""
        return math.log1p(self.noise)


def typical(before: Stretches, after: Stretches) -> Change | None:
    """Compare the typical step: the median over stretches. None where there are too few of them to tell."""
    return _change(before, after, _median)


def whole(before: Stretches, after: Stretches) -> Change | None:
    """Compare the mean step, whatever stands between steps included. None where there are too few to tell."""
    return _change(before, after, _mean)


def _change(before: Stretches, after: Stretches, centre: Centre) -> Change | None:
    """Return the change of one figure of the steps."""
    length = max(before.steps, after.steps)
    sides = [_lengthened(stretches, length) for stretches in (before, after)]
    if min(side.size for side in sides) < LEAST_STRETCHES or min(side.min() for side in sides) <= 0:
        return None
    values = [float(centre(side[None, :])[0]) for side in sides]
    variance = sum(_bootstrapped(side, centre) + _drift(side, centre) for side in sides)
    noise = max(LEAST_NOISE, math.expm1(DEVIATIONS * math.sqrt(variance)))
    return Change(values[0], values[1], noise)


def _lengthened(stretches: Stretches, steps: int) -> Values:
    """Return the means of longer stretches; both lengths are powers of two."""
    together = steps // stretches.steps
    values = np.asarray(stretches.mean_ns, dtype=np.float64)
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
