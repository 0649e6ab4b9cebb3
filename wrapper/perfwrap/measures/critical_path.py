"""The chain of work and waits that decided how long a GPU's recorded window took, walked from its end to its beginning.

The walk begins with the piece of work (kernel, copy or memory set) that ended last. A piece could begin when the last
of these had happened, and there the chain goes on:

- launch: the host had launched it. Between the launch and the beginning lies LAUNCH.
- stream order: the piece before it on its stream had ended.
- events: where the record tells that its stream had been told to wait for an event of another stream
  (``cudaStreamWaitEvent``, between the launches of the piece before it and its own), the last piece that had been
  launched on that stream before the event was recorded had ended.
- Where the record tells of no such event, other streams are inferred: the piece that ended last before it began, on
  any stream, if that was after its launch.

Between the end of a piece and the beginning of the one that waited for it lies QUEUED. Where the launch was the last,
the chain goes on along the host: back to the end of the last call in which it waited for the GPU
(``cudaStreamSynchronize``, ``.item()``), and from there along the GPU with the last piece that had ended then. The host
is one: its threads hand work to each other (the backward pass has one of its own) and none is told apart, so in host
order each moment of the threads that launch counts once. How the host spent its part is told by what they were at.

What happens on other GPUs and ranks is not followed: a collective that waits for another rank is told as collective.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from perfwrap.measures.gpu_events import DeviceEvents
from perfwrap.measures.host_activity import HostActivity, find_host_activity
from perfwrap.measures.intervals import Intervals, length, union, without
from perfwrap.measures.loop_events import Integers
from perfwrap.measures.stream_waits import find_awaited
from perfwrap.timeline.model import Timeline

HOST, LAUNCH, QUEUED = "host", "launch", "queued"
"""Parts of the path besides work: what the host did, from a launch to the work's beginning, and between two pieces of
work of which the second had been launched already."""

LEAST_WAIT_NS = 20_000
"""Calls that are shorter did not wait: an asynchronous copy takes that long by itself."""
RETURN_NS = 100_000
"""A call that waited returns so soon after the work that it waited for; most do within 20 microseconds."""
UNSEEN = "host"
"""What the host was at where nobody recorded it."""
DOUBTED_SHARE = 0.1
"""Of the window; more of the path on a host that nobody saw, while the GPU was busy, is no longer worth telling."""

Piece = tuple[str | int, int, int]
"""A part of the path: a word or the place of a row, from when to when."""


@dataclass(frozen=True)
class CriticalPath:
    """How long each part lies on the path, the longest first; the parts sum to the window.

    ``parts`` are classes of kernels, copy, memset, HOST, LAUNCH and QUEUED. ``host`` says what the host was at in its
    part, by the blames of idle moments; they sum to it.
    """

    parts: dict[str, int]
    host: dict[str, int] = field(default_factory=dict)


def find_critical_path(timeline: Timeline, events: DeviceEvents) -> CriticalPath | None:
    """Return the path through a GPU's window.

    None where there are no kernels, and where several windows, several processes, lost launches, clocks that do not fit
    or a host of which nothing was recorded leave the chain in doubt.
    """
    # Work without length would lead the walk nowhere.
    table = events.table.filter(pl.col("end") > pl.col("start"))
    whole = events.windows[0].size == 1 and table["process"].n_unique() == 1
    whole = whole and bool((table["category"] == "kernel").any())
    if not whole or events.clock_is_off or table["launched"].null_count():
        return None
    host = find_host_activity(timeline, table, int(table["process"][0]))
    kind = table.select(pl.coalesce("class", "category"))["class"].to_list()
    walk = Walk(table, _waits(host.blocked, table["end"].to_numpy()), int(events.windows[0][0]))
    walk.awaited = find_awaited(timeline, table)
    path = walk.pieces()
    found: dict[str, int] = {}
    for part, since, until in path:
        name = part if isinstance(part, str) else kind[part]
        found[name] = found.get(name, 0) + until - since
    spent, unseen = _spent(host, [(since, until) for part, since, until in path if part == HOST])
    # Where nothing was recorded of the host, it may have waited for the GPU that was at work meanwhile.
    hidden = length(unseen) - length(without(unseen, events.intervals()))
    if host.otherwise == UNSEEN and hidden > DOUBTED_SHARE * length(events.windows):
        return None
    return CriticalPath(_sorted(found), _sorted(spent))


class Walk:
    """The way back through the rows of a table of events, of which each has a launch and some length."""

    def __init__(self, table: pl.DataFrame, waits: Integers, begin: int) -> None:
        """Take the rows, the ends of the host's waits for the GPU, and where the window begins."""
        self.awaited: dict[int, list[int]] | None = None
        """What each row had to wait for on streams; None where waits for other streams were not recorded."""
        self._start, self._end, self._launched = (
            table[name].to_numpy() for name in ("start", "end", "launched")
        )
        self._order = np.argsort(self._end, kind="stable")
        self._ends = self._end[self._order]
        self._waits, self._begin = waits, begin

    def pieces(self) -> list[Piece]:
        """Return the parts of the path from the last to the first."""
        path: list[Piece] = []
        place = int(self._order[-1])
        at = int(self._end[place])
        while True:
            since = max(self._begin, min(at, int(self._start[place])))
            path.append((place, since, at))
            if since <= self._begin:
                return path
            handed = max(self._begin, min(since, int(self._launched[place])))
            before = self._before(place, since)
            if before is not None and self._end[before] > handed:
                at = int(self._end[before])
                path.append((QUEUED, at, since))
                place = before
                continue
            path.append((LAUNCH, handed, since))
            wait = int(np.searchsorted(self._waits, handed, side="right")) - 1
            if handed <= self._begin or wait < 0:
                path.append((HOST, self._begin, handed))
                return path
            place = self._ended_by(int(self._waits[wait]))
            at = int(self._end[place])
            path.append((HOST, at, handed))

    def _before(self, place: int, since: int) -> int | None:
        """Return the piece whose end let another begin; None where there is none."""
        if self.awaited is None:
            found = int(np.searchsorted(self._ends, since, side="right")) - 1
            return None if found < 0 else int(self._order[found])
        known = [before for before in self.awaited.get(place, ()) if self._end[before] <= since]
        return max(known, key=lambda before: int(self._end[before]), default=None)

    def _ended_by(self, moment: int) -> int:
        """Return the piece that ended last, at a moment or before."""
        return int(self._order[np.searchsorted(self._ends, moment, side="right") - 1])


def _waits(blocked: Intervals, end: Integers) -> Integers:
    """Return the ends of the calls in which the host waited for the GPU: work ended in them, just before they did."""
    ends = np.sort(end)
    begun, until = blocked
    last = np.searchsorted(ends, until, side="right") - 1
    ended = np.where(last >= 0, ends[np.maximum(last, 0)], np.iinfo(np.int64).min)
    return np.asarray(
        until[(until - begun >= LEAST_WAIT_NS) & (ended > begun) & (until - ended <= RETURN_NS)]
    )


def _spent(host: HostActivity, stretches: list[tuple[int, int]]) -> tuple[dict[str, int], Intervals]:
    """Return how long the host was at what in some stretches, by the first of the layers that holds, and the rest."""
    start, end = np.array(stretches, dtype=np.int64).reshape(-1, 2).T
    left = union([(start, end)])
    found = {}
    for blame, layer in host.layers.items():
        rest = without(left, layer)
        found[blame] = length(left) - length(rest)
        left = rest
    rest = without(left, host.between_steps)
    found["between_steps"] = length(left) - length(rest)
    found[host.otherwise] = found.get(host.otherwise, 0) + length(rest)
    return {blame: took for blame, took in found.items() if took}, rest


def _sorted(parts: dict[str, int]) -> dict[str, int]:
    """Return the parts with the longest first."""
    return dict(sorted(parts.items(), key=lambda part: -part[1]))
