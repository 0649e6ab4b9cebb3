"""The threads of a recording that has call stacks only: how often each waited, and where the others were at work."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.stacks import ENOUGH, Sampled, sampled

WAITS = (
    r"(?:^|;)(?:[\w.]*\.)?(?:_?wait\w*|_?poll|e?poll_wait|_?select|kevent|accept|_?recv\w*|_?read\w*|acquire|sleep|join|get"
    r"|_wait_for_tstate_lock|pthread_\w*wait\w*|futex\w*|lock)"
    r" \((?:[^;()]*/)?(?:threading|selectors|subprocess|queue|socket|ssl|time|multiprocessing/\w+"
    r"|concurrent/futures/\w+|asyncio/\w+|libc[^;/]*|libpthread[^;/]*)(?:\.py)?:\d+\)$"
)
"""The innermost frame of a thread that waits: a function of the standard library that blocks, and its file."""


class SampledThread(Struct, frozen=True):
    """One thread: its number of samples, how many of them waited, and the user's functions in the other ones.

    ``waits`` are the user's functions in those that waited; both are None with too few samples.
    """

    name: str
    count: int
    waiting: int
    phases: dict[str, int]
    """Samples at work by the recorder's name of the operation of PyTorch, most first."""
    works: Sampled | None
    waits: Sampled | None


def find_sampled_threads(evidence: Evidence) -> tuple[SampledThread, ...]:
    """Return the threads with enough samples, those that are most at work first."""
    timeline = evidence.timeline
    names = dict(timeline.tracks.select("id", "name").iter_rows())
    rows = timeline.stacks.with_columns(pl.col("stack").fill_null("").str.contains(WAITS).alias("waits"))
    found = []
    for (track,), own in rows.group_by("track", maintain_order=True):
        count = int(own["weight"].sum())
        if count < ENOUGH:
            continue
        waits, works = own.filter("waits"), own.filter(~pl.col("waits"))
        phases = works.drop_nulls("operation").group_by("operation").agg(pl.col("weight").sum())
        found.append(
            SampledThread(
                name=str(names.get(track) or "a thread"),
                count=count,
                waiting=int(waits["weight"].sum()),
                phases=dict(phases.sort("weight", "operation", descending=[True, False]).iter_rows()),
                works=sampled(works),
                waits=sampled(waits),
            )
        )
    return tuple(sorted(found, key=lambda thread: thread.waiting - thread.count))
