"""Relates the clock of a GPU to the host's, by bounds that the host has observed.

Events on a GPU only show how much later one was reached than another. So each has a place on the GPU's own time axis,
in nanoseconds since the first one; the result is the moment of a place on the host's clock. Nothing waits for the GPU;
the bounds are:

- an event is reached no earlier than it was recorded, and no earlier than a ``query()`` that found it pending;
- it is reached no later than a ``query()`` that found it done, and no later than the return of a call of the
  program that waited for its stream (``loss.item()``).

The bounds of one place hold for another, widened by the possible drift of the two clocks between them.
"""

from __future__ import annotations

DRIFT = 1e-4
"""Maximum relative drift of the two clocks; typical ones have a tenth of it."""

LAUNCH_NS = 5_000
"""Typical time until an idle GPU reaches a recorded event; the estimate if the bounds allow it."""


class GpuClock:
    """The bounds for one place at a time, the last one that was learned; all in nanoseconds."""

    __slots__ = ("_earliest", "_latest", "_place", "resets")

    def __init__(self, place, earliest, latest):
        self._place = place
        self._earliest = earliest
        self._latest = latest
        self.resets = 0
        """How often the bounds contradicted each other: a clock was set, or the machine was suspended."""

    @property
    def uncertainty(self):
        """The distance of the bounds."""
        return self._latest - self._earliest

    def learn(self, place, earliest, latest):
        """Learn that a place was reached between these two moments of the host's clock."""
        distance = place - self._place
        slack = int(abs(distance) * DRIFT)
        self._place = place
        self._earliest += distance - slack
        self._latest += distance + slack
        if earliest > self._latest or latest < self._earliest:
            self.resets += 1
            self._earliest, self._latest = earliest, latest
        else:
            self._earliest = max(self._earliest, earliest)
            self._latest = min(self._latest, latest)

    def moment(self, place):
        """Return the moment on the host's clock at which a place near the last one was reached."""
        return self._earliest + min(LAUNCH_NS, self.uncertainty // 2) + place - self._place


def nanoseconds(milliseconds):
    """Return a float of milliseconds as whole nanoseconds."""
    return int(round(milliseconds * 1e6))
