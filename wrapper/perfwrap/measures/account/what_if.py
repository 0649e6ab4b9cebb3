"""The step time without some waste, limited by the next bottleneck.

The diagnosis makes sure that two findings do not claim the same time: each segment of the account belongs to one.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct


class Limit(Struct, frozen=True):
    """A bottleneck: a step cannot be faster than this, whatever waste is removed."""

    name: str
    step_ns: float


NEARLY_ALL = 0.9
"""Minimum share that disappears of measured waste that one edit removes completely."""

SIDE_EFFECT = 0.6
"""Maximum additional gain, as a share of the waste, in a step with hardly anything else: caches, the allocator and the
cores then serve only the rest. The fixes of nineteen scripts gained 1.1 times the waste (median), between 0.8 and 1.5
times, the more the smaller the waste (docs/accuracy.md)."""

MOST = 0.75
"""Minimum share that disappears of waste whose time is measured and most of which one edit removes. Fixes of such waste
gained 0.8 to 1.5 times the waste (docs/accuracy.md)."""

BETTER, WORSE, OF_SAVING = 0.05, 0.02, 0.25
"""Margins of the best and the worst ratio, and the part of a small saving that they are at most. The measured ratio of
the same fix differs by 3 % from one measurement to the next, and most fixes bring rather more (four rounds of 48
scripts: docs/accuracy.md)."""

HALF = 0.5
"""Minimum share that disappears of waste that is only estimated, or that is partly necessary or moves elsewhere."""

NOTHING = 0.0
"""The same if it is unknown whether the edit helps."""


def without(share: float, least: float = HALF) -> tuple[float, float]:
    """Return the step-time ratios (best, worst) if all of a share of the step disappears, or ``least`` of it."""
    return (1.0 - share, 1.0 - least * share)


def without_measured(share: float) -> tuple[float, float]:
    """Return the step-time ratios (best, worst) if a measured share disappears that one edit removes."""
    return (best_without(share), 1.0 - NEARLY_ALL * share)


def best_without(share: float) -> float:
    """Return the step-time ratio if a share of the step disappears and the rest then takes less time, at best."""
    return max(0.0, 1.0 - share * (1.0 + SIDE_EFFECT * (1.0 - share)))


def without_growth(share: float, first_ns: float, last_ns: float) -> tuple[float, float]:
    """Return the ratios (best, worst) if work disappears whose growth, from first to last, costs a share of the step.

    At best, as with a running value, what it has taken from the beginning disappears too.
    """
    grown = last_ns - first_ns
    whole = share * (last_ns + first_ns) / grown if grown > 0 else share
    return (best_without(min(1.0, max(share, whole))), 1.0 - MOST * share)


def with_margin(saving: tuple[float, float]) -> tuple[float, float]:
    """Return a range of step-time ratios with the margins of a measurement.

    A range that is a gain stays one, and one that may be none stays so.
    """
    best, worst = saving
    least = min(BETTER * best, OF_SAVING * (1.0 - best))
    most = min(WORSE * worst, OF_SAVING * (1.0 - worst))
    return best - max(0.0, least), worst + max(0.0, most)


def step_without(step_ns: float, removed_ns: float, limits: Iterable[Limit] = ()) -> float:
    """Return the step time without ``removed_ns``, never below a limit and never above the present time."""
    floor = max((limit.step_ns for limit in limits), default=0.0)
    return min(step_ns, max(step_ns - removed_ns, floor, 0.0))


def saving(
    step_ns: float, removed_low_ns: float, removed_high_ns: float, limits: Iterable[Limit] = ()
) -> tuple[float, float]:
    """Return the step-time ratios (best, worst) after removing between low and high of the step time.

    (1.0, 1.0) if the step time is unknown or nothing is removed. Not rounded: reports round to two digits.
    """
    if step_ns <= 0:
        return (1.0, 1.0)
    kept = tuple(limits)
    best = step_without(step_ns, max(removed_low_ns, removed_high_ns), kept) / step_ns
    worst = step_without(step_ns, min(removed_low_ns, removed_high_ns), kept) / step_ns
    return (best, worst)
