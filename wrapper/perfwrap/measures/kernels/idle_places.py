"""What the host did while a GPU was idle, by the names of ranges, functions and calls on the launching threads."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.intervals import covered, union
from perfwrap.measures.kernels.gpu_activity import GpuActivity
from perfwrap.measures.kernels.host_activity import DRIVER, WAITING, launching_threads

KINDS = ("range", "function", "call", "system", "op")
"""A range of the program (NVTX, record_function), a Python function of the program, a call of CUDA's or HIP's runtime
or driver, a system call in which a thread waits, and a function of the framework."""

MIN_SHARE = 0.1
"""Share of the idle time from which a name is returned."""
SAME_SHARE = 0.9
"""A name that contains another one, which has this part of its idle time, says less than the other one."""
WHOLE_SHARE = 0.95
"""A single range, function or operation that takes this part of the windows contains everything and explains
nothing."""


class IdlePlace(Struct, frozen=True):
    """Everything of one name that the host did: ``count`` times, ``host_ns`` in all, ``idle_ns`` of it with an idle
    GPU.

    ``kind`` is one of KINDS.
    """

    kind: str
    name: str
    count: int
    host_ns: int
    idle_ns: int


def find_idle_places(gpu: GpuActivity, blames: Collection[str]) -> tuple[IdlePlace, ...]:
    """Return what the host did during the GPU's idle time of some causes (BLAMES), most idle time first.

    Of each kind those with at least MIN_SHARE of that time. Things inside each other both count.
    """
    pieces = gpu.idle.filter(pl.col("blame").cast(pl.String).is_in([*blames]))
    idle = union([(pieces["start"].to_numpy(), pieces["end"].to_numpy())])
    whole = int((idle[1] - idle[0]).sum())
    if not whole:
        return ()
    rows = _host_spans(gpu)
    start = rows["start"].to_numpy()
    end = start + rows["duration"].to_numpy()
    named = rows.with_columns(
        pl.Series("idle", covered(idle, start, end)),
        pl.Series("within", covered(gpu.events.windows, start, end)),
    )
    found = (
        named.group_by("kind", "name")
        .agg(pl.len().alias("count"), pl.col("within").sum(), pl.col("idle").sum())
        .filter(pl.col("idle") >= MIN_SHARE * whole)
        .sort("idle", "within", "name", descending=[True, False, False])
    )
    places = [
        IdlePlace(kind, name, count, within, min(ns, whole))
        for kind, name, count, within, ns in found.select(
            "kind", "name", "count", "within", "idle"
        ).iter_rows()
    ]
    return _innermost([place for place in places if not _is_whole(place, gpu.window_ns)])


def _host_spans(gpu: GpuActivity) -> pl.DataFrame:
    """Return start, duration, kind and name of what the threads did that launch the GPU's work."""
    threads = {
        thread
        for process in gpu.processes
        for thread in launching_threads(
            gpu.timeline, gpu.events.table.filter(pl.col("process") == process), process
        )
    }
    begin, end = int(gpu.events.windows[0][0]), int(gpu.events.windows[1][-1])
    operation, name = pl.col("operation"), pl.col("name")
    kind = (
        pl.when(operation == "nvtx")
        .then(pl.lit("range"))
        .when((operation == "python") & pl.col("file").is_not_null())
        .then(pl.lit("function"))
        .when(operation == "op")
        .then(pl.lit("op"))
        .when((operation == "osrt") & name.str.contains(WAITING))
        .then(pl.lit("system"))
        .when(operation.str.contains(DRIVER))
        .then(pl.lit("call"))
    )
    spans = gpu.timeline.spans.select("start", "duration", "track", "name", "operation", "file")
    inside = spans.filter(
        pl.col("track").is_in(sorted(threads)),
        pl.col("start") < end,
        pl.col("start") + pl.col("duration") > begin,
    )
    return inside.select("start", "duration", kind.alias("kind"), "name").drop_nulls()


def _is_whole(place: IdlePlace, window_ns: int) -> bool:
    """Return whether something contains the whole recording."""
    return place.count == 1 and place.kind != "call" and place.host_ns >= WHOLE_SHARE * window_ns


def _innermost(places: list[IdlePlace]) -> tuple[IdlePlace, ...]:
    """Return the places, of each kind without those that hold little more idle time than a shorter one."""
    kept = []
    for place in places:
        inside = [
            other
            for other in places
            if other.kind == place.kind
            and other.host_ns < place.host_ns
            and other.idle_ns >= SAME_SHARE * place.idle_ns
        ]
        if not inside:
            kept.append(place)
    return tuple(kept)
