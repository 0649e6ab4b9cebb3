"""What `perfwrap try` measured of changes of the same program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from perfwrap.measures.evidence import Evidence

MIN_GAIN = 0.03
"""Gain from which a change may be worth it: smaller ones disappear in the noise between runs."""


class Tried(Struct, frozen=True):
    """The step time with a change over that without it, and its 95 % interval."""

    ratio: float
    low: float
    high: float

    @property
    def is_gain(self) -> bool:
        """Whether the whole interval is below 1."""
        return self.high < 1.0

    @property
    def is_useless(self) -> bool:
        """Whether the whole interval is above what would be worth it; false too if the noise hides the result."""
        return self.low >= 1.0 - MIN_GAIN


def find_tried(evidence: Evidence) -> dict[str, Tried]:
    """Return what was measured, by change; empty if nothing is known to have been measured."""
    tried = evidence.timeline.run.get("tried")
    found = {}
    for name, values in tried.items() if isinstance(tried, Mapping) else ():
        measured = _measured(values)
        if measured is not None:
            found[str(name)] = measured
    return found


def _measured(values: Any) -> Tried | None:
    """Return the figures of one change; None if they are no ratio with its interval."""
    if not isinstance(values, list | tuple) or len(values) != 3:
        return None
    if not all(isinstance(value, int | float) and 0.0 < value < 100.0 for value in values):
        return None
    ratio, low, high = (float(value) for value in values)
    return Tried(ratio, low, high) if low <= ratio <= high else None
