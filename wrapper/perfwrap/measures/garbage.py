"""Pauses of Python's garbage collector inside the steady loop."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Garbage:
    """Collections on the training thread during the steady loop."""

    count: int
    pause_ns: int
    longest_ns: int
    share: float
    """``pause_ns`` over the whole account."""
    by_generation: dict[int, int]
    """Pause per generation, ns."""
    steps_hit: int
    """Steady steps with at least one pause of a millisecond or more."""
