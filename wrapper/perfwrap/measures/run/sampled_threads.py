"""The threads of a recording that has call stacks only: how often each waited, and where the others were at work."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.stacks import ENOUGH, Sampled, sampled

WAITS = (
    r"(?:^|;)(?:[\w.]*\.)?(?:_*(?:wait|e?poll|select|recv|read)\w*|kevent|accept|acquire|sleep|join|get|lock"
    r"|pthread_\w*wait\w*|futex\w*) \((?:[^;()]*/)?(?:threading|selectors|subprocess|queue|socket|ssl|time"
    r"|multiprocessing/\w+|concurrent/futures/\w+|asyncio/\w+|libc[^;/]*|libpthread[^;/]*)(?:\.py)?:\d+\)$"
)
"""The innermost frame of a thread that waits: a function of the standard library that blocks, and its file."""


class SampledThread(Struct, frozen=True):
    """One thread: its number of samples, how many of them waited, and the user's functions in the other ones.

    ``own`` counts the other ones that are in the program's own code. ``waits`` are the user's functions in those that
    waited; it and ``works`` are None with too few samples.
    """

    name: str
    count: int
    waiting: int
    own: int
    phases: dict[str, int]
    """Samples at work by the recorder's name of the operation of PyTorch, most first."""
    works: Sampled | None
    waits: Sampled | None


def find_sampled_threads(evidence: Evidence) -> tuple[SampledThread, ...]:
    """Return the threads with enough samples, those that are most in the program's own code first."""
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
                own=int(works.filter(pl.col("file").is_not_null())["weight"].sum()),
                phases=dict(phases.sort("weight", "operation", descending=[True, False]).iter_rows()),
                works=sampled(works),
                waits=sampled(waits),
            )
        )
    return tuple(sorted(found, key=lambda thread: (-thread.own, thread.waiting - thread.count)))
