"""What the threads of a process that launch the GPU's work were at, as far as it tells why the GPU was idle."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from perfwrap.measures.intervals import Intervals, union, without
from perfwrap.measures.trainers import TRAINING_SIGNS
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
"""Calls of the system in which a thread waits."""
LOADER = r"^enumerate\(DataLoader\)#"
"""How PyTorch's DataLoader calls the range in which the loop waits for a batch."""

FRAMEWORK = ("op", "cudnn", "cublas", "forward", "backward", "optimizer", "zero_grad", "scaler_step")
"""Operations in which the framework is at work."""

LEAST_SHARE_OF_LAUNCHES = 0.05
"""From this share of a process's launches on a thread counts as one that drives the GPU."""

GAP_IN_DISPATCH_NS = 300_000
"""Where no functions of the framework were recorded, calls of the driver in one step that are closer than this belong
to one run of launching: between two of its launches the framework takes some tens of microseconds, seldom hundreds."""


@dataclass(frozen=True)
class HostActivity:
    """When the launching threads were at what.

    ``layers`` goes by blame, what explains most first; ``otherwise`` is the blame where none of them holds.
    ``blocked`` is when a thread waited for the GPU or may have (in calls that copy), ``between_steps`` what lies
    between the steps that the program marks.
    """

    layers: dict[str, Intervals]
    otherwise: str
    blocked: Intervals
    between_steps: Intervals


def find_host_activity(timeline: Timeline, events: pl.DataFrame, process: int) -> HostActivity:
    """Return what the threads did that launched a process's ``events``."""
    threads = launching_threads(timeline, events, process)
    spans = timeline.spans.select("start", "duration", "track", "category", "operation", "name")
    spans = spans.filter(pl.col("track").is_in(threads))
    category, operation = pl.col("category").cast(pl.String), pl.col("operation")
    operations, names = (spans[text].unique() for text in ("operation", "name"))
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
        found["dispatch"] = _closed(found["dispatch"], GAP_IN_DISPATCH_NS, between)
    return HostActivity(
        layers=found,
        otherwise="python" if has_ops else "host",
        blocked=union([found["sync"], found["transfer"]]),
        between_steps=between,
    )


def launching_threads(timeline: Timeline, events: pl.DataFrame, process: int) -> list[int]:
    """Return the threads that launch a process's kernels, its main thread and those with signs of training."""
    launched = events.filter(pl.col("category") == "kernel")["thread"].drop_nulls().value_counts()
    often = launched.filter(pl.col("count") >= LEAST_SHARE_OF_LAUNCHES * pl.col("count").sum())
    threads = timeline.tracks.filter(pl.col("kind") == "thread", pl.col("parent") == process)
    main = threads.filter(pl.col("tid") == pl.col("pid"))
    signs = [sign for signs in TRAINING_SIGNS[:-1] for sign in signs]
    shows = timeline.spans.filter(
        pl.col("track").is_in(threads["id"].implode()),
        (pl.col("category") == "step") | pl.col("operation").is_in(signs),
    )["track"]
    return sorted({*often["thread"].to_list(), *main["id"].to_list(), *shows.unique().to_list()})


def _like(texts: pl.Series, pattern: str) -> pl.Expr:
    """Return the condition that a row has one of those texts that match; a million rows have few different ones."""
    return pl.col(texts.name).is_in(texts.filter(texts.str.contains(pattern)).implode())


def _intervals(spans: pl.DataFrame) -> Intervals:
    """Return when any of the spans lasted."""
    start = spans["start"].to_numpy()
    return union([(start, start + spans["duration"].to_numpy())])


def _closed(intervals: Intervals, widest: int, never: Intervals) -> Intervals:
    """Return the intervals with the gaps filled that are no wider than so, but never what lies in ``never``."""
    start, end = intervals
    narrow = start[1:] - end[:-1] <= widest
    return union([intervals, without(union([(end[:-1][narrow], start[1:][narrow])]), never)])


def _between(spans: pl.DataFrame) -> Intervals:
    """Return what lies between the first and the last marked step and in none of them."""
    steps = spans.filter(pl.col("category") == "step")
    inside = _intervals(steps)
    return without((inside[0][:1], inside[1][-1:]), inside)
