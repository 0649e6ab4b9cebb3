"""The chain of work and waits that decided the length of a GPU's recorded window, followed from its end to its start.

The search starts with the piece of work (kernel, copy or memory set) that ended last. A piece could start when the last
of these events had happened, and the chain continues there:

- launch: the host had launched it. The time between the launch and the start is LAUNCH.
- stream order: the previous piece on its stream had ended.
- events: if the record shows that its stream had to wait for an event of another stream (``cudaStreamWaitEvent``,
  between the launches of the previous piece and its own), the last piece launched on that stream before the event was
  recorded had ended.
- If the record shows no such event, other streams are inferred: the piece that ended last before the start, on any
  stream, if that was after its launch.

The time between the end of a piece and the start of the one that waited for it is QUEUED. If the launch was the last
event, the chain continues on the host: back to the end of the last call in which the host waited for the GPU
(``cudaStreamSynchronize``, ``.item()``), and from there on the GPU with the last piece that had ended then. The host
counts as one: its threads hand work to each other (the backward pass has its own thread), so each moment of the threads
that launch counts once. The activity of these threads shows how the host spent its part.

Other GPUs and ranks are not followed: a collective that waits for another rank counts as collective.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
from msgspec import Struct, field

from perfwrap.measures.account.intervals import Intervals, length, union, without
from perfwrap.measures.account.loop_events import Integers
from perfwrap.measures.kernels.gpu_events import DeviceEvents
from perfwrap.measures.kernels.host_activity import HostActivity, find_host_activity
from perfwrap.measures.kernels.stream_waits import Awaited, find_awaited
from perfwrap.timeline.model import Timeline

HOST, LAUNCH, QUEUED = "host", "launch", "queued"
"""Parts of the path besides work: host activity, from a launch to the start of the work, and between two pieces of work
of which the second had already been launched."""

MIN_WAIT_NS = 20_000
"""Shorter calls did not wait: an asynchronous copy takes that long by itself."""
MAX_RETURN_NS = 100_000
"""A call that waited returns within this time after the work; most do within 20 µs."""
NOT_RECORDED = "host"
"""The host activity if it was not recorded."""
MAX_UNKNOWN_SHARE = 0.1
"""Share of the window; with more of the path on an unrecorded host while the GPU was busy, there is no result."""

Piece = tuple[str | int, int, int]
"""A part of the path: a word or the index of a row, with start and end."""


class CriticalPath(Struct, frozen=True):
    """The time of each part on the path, longest first; the parts add up to the window.

    ``parts`` are classes of kernels, copy, memset, HOST, LAUNCH and QUEUED. ``host`` divides the host's part by its
    activity, with the names of idle time; they add up to it.
    """

    parts: dict[str, int]
    host: dict[str, int] = field(default_factory=dict)


def find_critical_path(timeline: Timeline, events: DeviceEvents) -> CriticalPath | None:
    """Return the path through a GPU's window.

    None without kernels, or if the chain is uncertain: several windows, several processes, lost launches, clocks that
    do not match, or an unrecorded host.
    """
    # Work of zero length would not advance the search.
    kind = pl.coalesce("class", "category").alias("kind")
    columns = ("start", "end", "track", "process", "category", "launched", "thread")
    table = events.table.lazy().filter(pl.col("end") > pl.col("start")).select(*columns, kind).collect()
    whole = events.windows[0].size == 1 and table["process"].n_unique() == 1
    whole = whole and bool((table["category"] == "kernel").any())
    if not whole or events.clock_is_off or table["launched"].null_count():
        return None
    host = find_host_activity(timeline, table, int(table["process"][0]))
    kinds = table["kind"].unique().to_list()
    codes = table["kind"].replace_strict(kinds, range(len(kinds)), return_dtype=pl.UInt32).to_numpy()
    walk = Walk(table, _waits(host.blocked, table["end"].to_numpy()), int(events.windows[0][0]))
    walk.awaited = find_awaited(timeline, table)
    found: dict[str, int] = {}
    on_host: list[tuple[int, int]] = []
    for part, since, until in walk.pieces():
        name = part if isinstance(part, str) else kinds[codes[part]]
        found[name] = found.get(name, 0) + until - since
        if part == HOST:
            on_host.append((since, until))
    spent, unseen = _spent(host, on_host)
    # An unrecorded host may have waited for the GPU, which was busy at that time.
    hidden = length(unseen) - length(without(unseen, events.intervals()))
    if host.otherwise == NOT_RECORDED and hidden > MAX_UNKNOWN_SHARE * length(events.windows):
        return None
    return CriticalPath(_sorted(found), _sorted(spent))


class Walk:
    """The way back through the rows of a table of events; each has a launch and a length above zero."""

    def __init__(self, table: pl.DataFrame, waits: Integers, begin: int) -> None:
        """Take the rows, the ends of the host's waits for the GPU, and the start of the window."""
        self.awaited: Awaited | None = None
        """The rows on streams that each row had to wait for; None if waits for other streams were not recorded."""
        self._start, self._end, self._launched = (
            table[name].to_numpy() for name in ("start", "end", "launched")
        )
        self._order = np.argsort(self._end, kind="stable")
        self._ends = self._end[self._order]
        self._ended = np.searchsorted(self._ends, self._start, side="right") - 1
        """Of each row, the place in the order of ends of the last one that had ended when it started."""
        self._waits, self._begin = waits, begin

    def pieces(self) -> Iterator[Piece]:
        """Yield the parts of the path from the last to the first."""
        place = int(self._order[-1])
        at = int(self._end[place])
        while True:
            since = max(self._begin, min(at, int(self._start[place])))
            yield place, since, at
            if since <= self._begin:
                return
            handed = max(self._begin, min(since, int(self._launched[place])))
            before = self._before(place, since)
            if before is not None and self._end[before] > handed:
                at = int(self._end[before])
                yield QUEUED, at, since
                place = before
                continue
            yield LAUNCH, handed, since
            wait = int(np.searchsorted(self._waits, handed, side="right")) - 1
            if handed <= self._begin or wait < 0:
                yield HOST, self._begin, handed
                return
            place = self._ended_by(int(self._waits[wait]))
            at = int(self._end[place])
            yield HOST, at, handed

    def _before(self, place: int, since: int) -> int | None:
        """Return the piece whose end allowed another to start; None if there is none."""
        if self.awaited is None:
            known = since == self._start[place]
            found = int(self._ended[place] if known else np.searchsorted(self._ends, since, side="right") - 1)
            return None if found < 0 else int(self._order[found])
        awaited = [before for before in self.awaited.of(place) if self._end[before] <= since]
        return max(awaited, key=lambda before: int(self._end[before]), default=None)

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
        until[(until - begun >= MIN_WAIT_NS) & (ended > begun) & (until - ended <= MAX_RETURN_NS)]
    )


def _spent(host: HostActivity, pieces: list[tuple[int, int]]) -> tuple[dict[str, int], Intervals]:
    """Return the time of each host activity in some pieces, by the first matching layer, and the rest."""
    start, end = np.array(pieces, dtype=np.int64).reshape(-1, 2).T
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
    """Return the parts, longest first."""
    return dict(sorted(parts.items(), key=lambda part: -part[1]))
