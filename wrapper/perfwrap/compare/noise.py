"""How much longer or shorter a step takes in some runs than in others, and how much of that noise alone can be.

Where there are several runs of a side, their own spread says how much runs differ: a Student's t of the difference of
the means of the logarithms, both sides' spread pooled.

Where there is one run of each, nothing says it, and it is made out of the runs' steps. Those that follow each other are
alike (a busy neighbour, a hot processor), so they are no independent samples. Two things are therefore added up for
both runs: a block bootstrap, which keeps neighbours together (Künsch 1989; circular, Politis and Romano 1992), and the
spread between the eighths of a run, undivided: another run may differ from this one as a part of it differs from the
next. On a machine whose pace wanders, it differs by more (measured: equal runs of 3 and of 30 seconds on a virtual
machine with neighbours), so what comes to more than a tenth counts double, up to a half. Two per cent are noise in any
case, as they are for rules.
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

LEAST_STRETCHES = 8
"""Fewer stretches tell nothing about how they vary."""

PARTS = 8
"""Parts of a run that are held against each other for its drift."""

RESAMPLES = 400

DEVIATIONS = 2.5
"""How many standard deviations noise is given. Two tails of a normal distribution beyond it are 1.2 %: two figures are
judged, and a deviation that is estimated from eight parts is itself uncertain. scripts/compare_noise.py measures it."""

LEAST_FREEDOM = 2
"""Degrees of freedom from which the runs' own spread is believed: two runs of each side, or three and one."""

OUTSIDE = 0.025
"""Of Student's distribution, both tails together: two figures are judged, and five per cent are to be wrong at most."""

RESTLESS = 0.10
"""Noise of single runs beyond which the machine's pace wanders, and says of the next run less than it seems."""

RESTLESS_FACTOR, RESTLESS_NOISE = 2.0, 0.50
"""By what it is multiplied then, and up to which noise. Of 31 pairs of equal runs 5 were called different without it,
and 1 with it; a higher limit changes nothing of that, and would hide what a good mending brings."""

LEAST_NOISE = 0.02
"""Relative; the noise of a quiet machine from run to run."""


@dataclass(frozen=True)
class Stretches:
    """Mean step times of stretches of equally many steps."""

    steps: int
    mean_ns: tuple[float, ...]


@dataclass(frozen=True)
class Change:
    """One figure of both sides. ``noise`` is relative: from 1 - noise to 1 + noise a ``ratio`` says nothing."""

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


Side: TypeAlias = Sequence[Stretches]
"""One run, or several of the same."""


def typical(before: Side, after: Side) -> Change | None:
    """Compare the typical step: the median over stretches. None where there are too few of them to tell."""
    return _change(before, after, _median)


def whole(before: Side, after: Side) -> Change | None:
    """Compare the mean step, whatever stands between steps included. None where there are too few to tell."""
    return _change(before, after, _mean)


def _change(before: Side, after: Side, centre: Centre) -> Change | None:
    """Return the change of one figure of the steps; that of several runs is their geometric mean."""
    length = max(stretches.steps for stretches in (*before, *after))
    sides = [[_lengthened(stretches, length) for stretches in side] for side in (before, after)]
    runs = [run for side in sides for run in side]
    if min(run.size for run in runs) < LEAST_STRETCHES or min(run.min() for run in runs) <= 0:
        return None
    old, new = ([float(np.log(centre(run[None, :])[0])) for run in side] for side in sides)
    within = sum(_bootstrapped(run, centre) / len(side) ** 2 for side in sides for run in side)
    if len(runs) - 2 >= LEAST_FREEDOM:
        margin = max(DEVIATIONS * math.sqrt(within), _between(old, new))
    else:
        drift = sum(_drift(run, centre) / len(side) ** 2 for side in sides for run in side)
        margin = DEVIATIONS * math.sqrt(within + drift)
        if margin > RESTLESS:
            margin = max(margin, min(RESTLESS_FACTOR * margin, math.log1p(RESTLESS_NOISE)))
    noise = max(LEAST_NOISE, math.expm1(margin))
    return Change(math.exp(np.mean(old)), math.exp(np.mean(new)), noise)


def _between(before: Sequence[float], after: Sequence[float]) -> float:
    """Return how far the means of equal sides may be apart, by how much the runs of each side are."""
    freedom = len(before) + len(after) - 2
    squares = sum(float(np.square(np.subtract(side, np.mean(side))).sum()) for side in (before, after))
    deviation = math.sqrt(squares / freedom * (1 / len(before) + 1 / len(after)))
    return deviation * _student(freedom)


@cache
def _student(freedom: int) -> float:
    """Return beyond how many deviations Student's distribution leaves OUTSIDE; drawn, right to about a per cent."""
    draws = np.random.default_rng(0).standard_t(freedom, 400_000)
    return float(np.quantile(np.abs(draws), 1 - OUTSIDE))


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
