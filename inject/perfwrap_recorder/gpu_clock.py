"""Ties the clock of a GPU to the host's, by what is known of moments that both have seen.

Events on a GPU only tell how much later one was reached than another. So they have places on the GPU's own axis, in
nanoseconds since the first one, and what is to be found is the moment of a place on the host's clock. Nothing is
ever waited for; bounds come for free:

- an event is reached no earlier than it was recorded, and no earlier than a ``query()`` that found it pending;
- it is reached no later than a ``query()`` that found it done, and no later than the return of a call of the
  user's own that waited for its stream (``loss.item()``).

What is known of one place is known of another, as much less surely as two clocks may have drifted between them.
"""

from __future__ import annotations

DRIFT = 1e-4
"""By which share two clocks may differ; good ones differ by a tenth of it."""

LAUNCH_NS = 5_000
"""How long after its recording an idle GPU reaches an event, about; the best guess where bounds allow it."""


class GpuClock:
    """The bounds for one place at a time, the one that was learned of last; all in nanoseconds."""

    __slots__ = ("_earliest", "_latest", "_place", "resets")

    def __init__(self, place, earliest, latest):
        self._place = place
        self._earliest = earliest
        self._latest = latest
        self.resets = 0
        """How often the bounds contradicted each other: a clock was set, or the machine slept."""

    @property
    def uncertainty(self):
        """How far the bounds are apart."""
        return self._latest - self._earliest

    def learn(self, place, earliest, latest):
        """Take in that a place was reached between these two moments of the host's clock."""
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
        """Return when a place near the last one was reached, on the host's clock."""
        return self._earliest + min(LAUNCH_NS, self.uncertainty // 2) + place - self._place


def nanoseconds(milliseconds):
    """Return a float of milliseconds as whole nanoseconds."""
    return int(round(milliseconds * 1e6))
