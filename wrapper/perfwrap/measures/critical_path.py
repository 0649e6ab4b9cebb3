"""The chain of work and waits that decided how long a GPU's recorded window took, walked from its end to its beginning.

A piece of GPU work began when the last of three things had happened: its stream had finished what came before, other
work that it may have waited for had ended, or the host had launched it. Where the host was last, the chain goes on
along the host to the last call in which it had waited for the GPU, and from there on along the GPU again.

That a piece waited for another stream is inferred: from work that ended before it began and after it had been launched.
What happens on other GPUs and ranks is not followed: a collective that waits for another rank is told as collective.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from perfwrap.measures.gpu_events import DeviceEvents
from perfwrap.measures.host_activity import find_host_activity
from perfwrap.measures.intervals import Intervals
from perfwrap.measures.loop_events import Integers
from perfwrap.timeline.model import Timeline

HOST, LAUNCH, QUEUED = "host", "launch", "queued"
"""Parts of the path besides work: what the host did, from a launch to the work's beginning, and between two pieces of
work of which the second had been launched already."""

LEAST_WAIT_NS = 20_000
"""Calls that are shorter did not wait: an asynchronous copy takes that long by itself."""
RETURN_NS = 100_000
"""A call that waited returns so soon after the work that it waited for; most do within 20 microseconds."""


def find_critical_path(timeline: Timeline, events: DeviceEvents) -> dict[str, int] | None:
    """Return how long each part lies on the path: classes of kernels, copy, memset, HOST, LAUNCH and QUEUED.

    They sum to the window. None where there are no kernels, and where several windows, several processes, lost launches
    or clocks that do not fit leave the chain in doubt.
    """
    # Work without length would lead the walk nowhere.
    table = events.table.filter(pl.col("end") > pl.col("start"))
    whole = events.windows[0].size == 1 and table["process"].n_unique() == 1
    whole = whole and bool((table["category"] == "kernel").any())
    if not whole or events.clock_is_off or table["launched"].null_count():
        return None
    host = find_host_activity(timeline, table, int(table["process"][0]))
    kind = table.select(pl.coalesce("class", "category"))["class"].to_list()
    start, end, launched = (table[name].to_numpy() for name in ("start", "end", "launched"))
    found: dict[str, int] = {}
    begin = int(events.windows[0][0])
    for part, since, until in _walk(start, end, launched, _waits(host.blocked, end), begin):
        name = part if isinstance(part, str) else kind[part]
        found[name] = found.get(name, 0) + until - since
    return dict(sorted(found.items(), key=lambda part: -part[1]))


def _walk(
    start: Integers, end: Integers, launched: Integers, waits: Integers, begin: int
) -> list[tuple[str | int, int, int]]:
    """Return the pieces of the path from the last to the first: a word or the place of a row, from when to when."""
    order = np.argsort(end, kind="stable")
    ends = end[order]
    path: list[tuple[str | int, int, int]] = []
    at, place = int(ends[-1]), int(order[-1])
    while True:
        since = max(begin, min(at, int(start[place])))
        path.append((place, since, at))
        if since <= begin:
            return path
        handed = min(since, int(launched[place]))
        before = _ended_by(ends, order, since)
        if before is not None and end[before] > handed:
            path.append((QUEUED, int(end[before]), since))
            at, place = int(end[before]), before
            continue
        path.append((LAUNCH, max(begin, handed), since))
        wait = int(np.searchsorted(waits, handed, side="right")) - 1
        if handed <= begin or wait < 0:
            path.append((HOST, begin, max(begin, handed)))
            return path
        place = int(order[np.searchsorted(ends, waits[wait], side="right") - 1])
        at = int(end[place])
        path.append((HOST, at, handed))


def _ended_by(ends: Integers, order: Integers, moment: int) -> int | None:
    """Return the place of the work that ended last, at a moment or before; None where there is none."""
    place = int(np.searchsorted(ends, moment, side="right")) - 1
    return None if place < 0 else int(order[place])


def _waits(blocked: Intervals, end: Integers) -> Integers:
    """Return the ends of the calls in which the host waited for the GPU: work ended in them, just before they did."""
    ends = np.sort(end)
    begun, until = blocked
    last = np.searchsorted(ends, until, side="right") - 1
    ended = np.where(last >= 0, ends[np.maximum(last, 0)], np.iinfo(np.int64).min)
    return np.asarray(
        until[(until - begun >= LEAST_WAIT_NS) & (ended > begun) & (until - ended <= RETURN_NS)]
    )
