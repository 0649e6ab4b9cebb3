"""The part of a very large recording that is read, so that memory does not grow with the file.

It is one stretch of time: a recording that was started later and stopped earlier, in which every figure keeps its
meaning. The events of a random sample would lose their neighbours.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

MAX_EVENTS = 6_000_000
"""Maximum number of events of one recording that are read: a diagnosis of them needs less than 2 GB."""


class Part(Struct, frozen=True):
    """The events that start in [start, end), of a recording of ``events`` ones that start from ``first`` to ``last``.

    Times are nanoseconds, as in the file.
    """

    start: int
    end: int
    first: int
    last: int
    events: int

    @property
    def sentence(self) -> str:
        """What is read, as a sentence without its subject."""
        begin, end, whole = ((at - self.first) / 1e9 for at in (self.start, self.end, self.last))
        return (
            f"has about {self.events / 1e6:.0f} million events, so only those from second {begin:.1f} to {end:.1f} of "
            f"its {whole:.1f} s were read"
        )


def middle(
    starts: NDArray[np.int64], weights: NDArray[np.float64], most_events: int, around: int | None = None
) -> Part:
    """Return the part with ``most_events`` events around a moment, or around the middle one of the events.

    Each of the ``starts``, in any order, stands for as many events as its weight says; together they are more than
    ``most_events``.
    """
    order = np.argsort(starts, kind="stable")
    starts, reached = starts[order], np.cumsum(weights[order])
    total = float(reached[-1])
    place = starts.size // 2 if around is None else int(np.searchsorted(starts, around))
    begin = float(reached[min(place, starts.size - 1)]) - most_events / 2
    begin = min(max(0.0, begin), total - most_events)
    first, last = np.searchsorted(reached, [begin, begin + most_events]).clip(0, starts.size - 1)
    return Part(int(starts[first]), int(starts[last]) + 1, int(starts[0]), int(starts[-1]), round(total))
