"""What a step would take without a waste, floored at the next limit.

That no two findings sell the same time is the diagnosis's business: it gives each segment of the account
away once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """Something that a step cannot be faster than, whatever waste is removed."""

    name: str
    step_ns: float


NEARLY_ALL = 0.9
"""Of a waste that was measured and that one edit takes out as a whole, what goes at worst."""

BESIDE = 0.3
"""What goes beside it at best, as a part of the waste in a step that holds hardly anything else: caches, the allocator
and the processors then serve the rest alone. Mending sixteen scripts by hand brought 1.1 times the waste as a median,
between 0.75 and 1.4 times (docs/accuracy.md)."""

HALF = 0.5
"""What goes at worst of a waste that is only inferred, or of which part has to be done or moves elsewhere."""

NOTHING = 0.0
"""The same where nobody can tell whether the edit helps."""


def without(share: float, least: float = HALF) -> tuple[float, float]:
    """Return the step-time ratios (best, worst) when all of a share of the step goes, or ``least`` of it."""
    return (1.0 - share, 1.0 - least * share)


def without_measured(share: float) -> tuple[float, float]:
    """Return the step-time ratios (best, worst) when a share goes that was measured and that one edit takes out."""
    return (max(0.0, 1.0 - share * (1.0 + BESIDE * (1.0 - share))), 1.0 - NEARLY_ALL * share)


def step_without(step_ns: float, removed_ns: float, limits: Iterable[Limit] = ()) -> float:
    """Return the step's time with ``removed_ns`` gone, never below a limit and never above today's time."""
    floor = max((limit.step_ns for limit in limits), default=0.0)
    return min(step_ns, max(step_ns - removed_ns, floor, 0.0))


def saving(
    step_ns: float, removed_low_ns: float, removed_high_ns: float, limits: Iterable[Limit] = ()
) -> tuple[float, float]:
    """Return the step-time ratios (best, worst) after removing between low and high of the step's time.

    (1.0, 1.0) when the step's time is unknown or nothing is removed. Not rounded: reports round to two
    digits.
    """
    if step_ns <= 0:
        return (1.0, 1.0)
    kept = tuple(limits)
    best = step_without(step_ns, max(removed_low_ns, removed_high_ns), kept) / step_ns
    worst = step_without(step_ns, min(removed_low_ns, removed_high_ns), kept) / step_ns
    return (best, worst)
