"""The activity of the threads that launch the GPU's work, as far as it explains why the GPU was idle."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.intervals import Intervals, union, without
from perfwrap.measures.trainers import TRAINING_SIGNS
from perfwrap.timeline.coverage import RECORDER
from perfwrap.timeline.model import Timeline

ALLOCATION = (
    r"^(cuda|hip)(Malloc|Free|HostAlloc|HostFree|HostRegister|HostUnregister|ExtMalloc|HostMalloc)"
    r"|^cuMem(Alloc|Free|HostAlloc|Create|Release|Map|Unmap|AddressReserve|SetAccess|HostRegister)"
)
SYNC = r"^(cuda|hip|cu)(Device|Stream|Event|Ctx)Synchronize"
COPY = r"^(cuda|hip|cu)Memcpy"
DRIVER = r"^(cuda|hip)[A-Z]|^cu[A-Z]|^hipModule"
WAITING = (
    r"^(poll|ppoll|select|pselect|epoll_wait|epoll_pwait|sem_|pthread_cond_|pthread_join|futex|nanosleep|usleep"
    r"|sleep|clock_nanosleep|read|readv|recv|recvfrom|recvmsg|accept|waitpid|wait4|connect)"
)
"""System calls in which a thread waits."""
LOADER = r"^enumerate\(DataLoader\)#"
"""The name of the range in which PyTorch's DataLoader waits for a batch."""

FRAMEWORK = ("op", "cudnn", "cublas", "forward", "backward", "optimizer", "zero_grad", "scaler_step")
"""Operations in which the framework works."""

MIN_LAUNCHES_SHARE = 0.05
"""Share of a process's launches from which a thread counts as launching."""

MAX_DISPATCH_GAP_NS = 300_000
"""If the framework's functions were not recorded, driver calls in one step that are closer than this belong to one run
of launches: between two launches the framework takes some tens of microseconds, rarely hundreds."""


class HostActivity(Struct, frozen=True):
    """When the launching threads did what.

    ``layers`` maps causes to times, the most specific cause first; ``otherwise`` is the cause if none of them applies.
    ``blocked`` is when a thread waited for the GPU or may have (in calls that copy), ``between_steps`` the time between
    the steps that the program marks.
    """

    layers: dict[str, Intervals]
    otherwise: str
    blocked: Intervals
    between_steps: Intervals


def find_host_activity(timeline: Timeline, events: pl.DataFrame, process: int) -> HostActivity:
    """Return the activity of the threads that launched a process's ``events``, by their category and thread."""
    threads = launching_threads(timeline, events, process)
    # Not collected, so that a million functions are not copied with their names.
    spans = timeline.spans.lazy().filter(pl.col("track").is_in(threads))
    category, operation = pl.col("category").cast(pl.String), pl.col("operation")
    operations, names, sources = (
        spans.select(pl.col(text).unique()).collect()[text] for text in ("operation", "name", "source")
    )
    has_ops = "op" in operations
    layers = {
        "gc": category == "gc",
        "profiler": (category == "perfwrap") | (operation == "overhead"),
        "checkpoint": category == "checkpoint",
        "data": (category == "data") | _like(names, LOADER),
        "compile": category == "compile",
        "allocation": _like(operations, ALLOCATION),
        "collective": category == "collective",
        "validation": category == "validation",
        "sync": (category == "sync") | _like(operations, SYNC),
        "transfer": (category == "transfer") | _like(operations, COPY),
        "dispatch": operation.is_in(FRAMEWORK) | _like(operations, DRIVER),
        "waiting": (operation == "osrt") & _like(names, WAITING),
    }
    found = {blame: _intervals(spans.filter(condition)) for blame, condition in layers.items()}
    between = _between(spans)
    if not has_ops:
        found["dispatch"] = _closed(found["dispatch"], MAX_DISPATCH_GAP_NS, between)
    return HostActivity(
        layers=found,
        # The recorder sees all that torch is called for, so the rest is the program's Python.
        otherwise="python" if has_ops or RECORDER in sources else "host",
        blocked=union([found["sync"], found["transfer"]]),
        between_steps=between,
    )


def launching_threads(timeline: Timeline, events: pl.DataFrame, process: int) -> list[int]:
    """Return the threads that launch a process's kernels, its main thread and those with signs of training."""
    launched = events.filter(pl.col("category") == "kernel")["thread"].drop_nulls().value_counts()
    often = launched.filter(pl.col("count") >= MIN_LAUNCHES_SHARE * pl.col("count").sum())
    threads = timeline.tracks.filter(pl.col("kind") == "thread", pl.col("parent") == process)
    main = threads.filter(pl.col("tid") == pl.col("pid"))
    signs = [sign for signs in TRAINING_SIGNS[:-1] for sign in signs]
    shows = timeline.spans.filter(
        pl.col("track").is_in(threads["id"].implode()),
        (pl.col("category") == "step") | pl.col("operation").is_in(signs),
    )["track"]
    return sorted({*often["thread"].to_list(), *main["id"].to_list(), *shows.unique().to_list()})


def _like(texts: pl.Series, pattern: str) -> pl.Expr:
    """Return the condition that a row has one of the matching texts; a million rows have few different ones."""
    return pl.col(texts.name).is_in(texts.filter(texts.str.contains(pattern)).implode())


def _intervals(spans: pl.LazyFrame) -> Intervals:
    """Return when any of the spans ran."""
    rows = spans.select("start", "duration").collect()
    start = rows["start"].to_numpy()
    return union([(start, start + rows["duration"].to_numpy())])


def _closed(intervals: Intervals, widest: int, never: Intervals) -> Intervals:
    """Return the intervals with gaps of at most ``widest`` filled, except what is in ``never``."""
    start, end = intervals
    narrow = start[1:] - end[:-1] <= widest
    return union([intervals, without(union([(end[:-1][narrow], start[1:][narrow])]), never)])


def _between(spans: pl.LazyFrame) -> Intervals:
    """Return the time between the first and the last marked step that is in none of them."""
    steps = spans.filter(pl.col("category") == "step")
    inside = _intervals(steps)
    return without((inside[0][:1], inside[1][-1:]), inside)
