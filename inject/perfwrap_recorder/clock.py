"""The recorder's clock: CLOCK_MONOTONIC in nanoseconds, which all processes of a host share."""

from __future__ import annotations

from time import monotonic_ns as now
from time import time_ns

ATTEMPTS = 5
"""How often a pair is taken: the one whose two monotonic readings lie closest was disturbed the least."""


def read_pair() -> tuple[int, int]:
    """Return one moment on both clocks: (monotonic, wall), nanoseconds."""
    best = None
    for _ in range(ATTEMPTS):
        before = now()
        wall = time_ns()
        width = now() - before
        if best is None or width < best[0]:
            best = width, before + width // 2, wall
    return best[1], best[2]
