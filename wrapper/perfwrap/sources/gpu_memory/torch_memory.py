"""Reads GPU memory snapshots: pickles of ``torch.cuda.memory._dump_snapshot`` and ``_snapshot``.

The format is that of ``torch/cuda/memory.py`` and ``_memory_viz.py`` (seen: PyTorch 2.6 to 2.8, with and without
history), plain or gzipped. The pickle is parsed, not run; see memory_snapshot.py and plain_pickle.py.

The timeline gets the allocator's memory on each device (facts ``snapshot/...``), a mark ``live_block`` for each line
of the program that requested live blocks, and, if the snapshot has a history, marks ``peak_block`` for the lines that
requested the blocks alive at its maximum, and ``segment_free`` for the lines in which memory was returned to the
driver, the numbers of requests to the driver, and, if it has times, the series ``allocated_bytes`` and
``reserved_bytes``; an ``oom`` in it becomes the mark ``out_of_memory``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from perfwrap.journal_format import FIELD_SEPARATOR
from perfwrap.sources.gpu_memory.memory_history import find_history, find_peak
from perfwrap.sources.gpu_memory.memory_snapshot import (
    DeviceMemory,
    Frame,
    Group,
    MemoryEvent,
    read_snapshot,
    users_line,
)
from perfwrap.sources.kineto.trace_words import plain_text
from perfwrap.sources.unpacked import GZIP, first_bytes
from perfwrap.timeline.builder import TimelineBuilder

SOURCE = "torch_memory"
HEAD_BYTES = 1 << 16
PICKLE = b"\x80"
SIGNS = (b"segments", b"total_size")
"""One of these is near the beginning."""
MAX_LINES = 200
PID = 0
"""The pid of all snapshots, which do not contain one."""
SETTINGS = "PYTORCH_CUDA_ALLOC_CONF"
REQUESTS = ("segment_alloc", "segment_map")
RETURNS = ("segment_free", "segment_unmap")
"""Events in which torch's allocator requests memory from the driver, and returns it."""


def recognises(path: Path, head: bytes) -> bool:
    """Return whether a file is a pickle that begins like these snapshots."""
    start = first_bytes(path, HEAD_BYTES) if head.startswith(GZIP) else head
    return start.startswith(PICKLE) and any(sign in start[:HEAD_BYTES] for sign in SIGNS)


def add(builder: TimelineBuilder, path: Path) -> None:
    """Add a snapshot; PerfwrapError if it cannot be read or would run code."""
    snapshot = read_snapshot(path)
    host = plain_text(path.name).removesuffix(".gz").removesuffix(".pickle").removesuffix(".pkl")
    process = builder.process(host, PID)
    builder.describe(process, name="process", role="main", pid=None)
    time = max((event.time for event in snapshot.events if event.time is not None), default=0)
    _add_lines(builder, snapshot.groups, "live_block", process, time)
    if snapshot.settings.get(SETTINGS):
        _say(builder, time, process, f"env/{SETTINGS}", snapshot.settings[SETTINGS])
    by_device: dict[int, list[MemoryEvent]] = {}
    for event in snapshot.events:
        by_device.setdefault(event.device, []).append(event)
    for memory in snapshot.devices:
        gpu = builder.device(host, f"gpu/{memory.device}")
        _add_device(builder, memory, gpu, time)
        events = by_device.get(memory.device, [])
        history = find_history(events, memory, snapshot.live)
        _add_series(builder, history, gpu, time)
        _add_shortages(builder, events, history, process)
        peak = find_peak(events, history, snapshot.live, snapshot.held)
        _add_lines(builder, peak, "peak_block", gpu, time)
        _add_returns(builder, events, gpu, time)
    if not snapshot.devices:
        builder.warn(f"{path.name} lists no memory: torch had reserved none when the file was written.")


def _add_lines(builder: TimelineBuilder, groups: Iterable[Group], name: str, track: int, time: int) -> None:
    """Add a mark for each line that requested some blocks, for the lines with the most memory."""
    sums: dict[Frame | None, list[int]] = {}
    for group in groups:
        total = sums.setdefault(users_line(group.stack), [0, 0])
        total[0] += group.size
        total[1] += group.blocks
    for frame, (size, count) in sorted(sums.items(), key=lambda item: -item[1][0])[:MAX_LINES]:
        file, line, function = frame or (None, None, None)
        builder.add_row(
            "marks",
            time=time,
            track=track,
            name=name,
            detail=str(count),
            file=file or None,
            line=line if file else None,
            function=function,
            value=float(size),
            source=SOURCE,
        )


def _add_device(builder: TimelineBuilder, memory: DeviceMemory, gpu: int, time: int) -> None:
    """Add the allocator's memory on one device."""
    figures = {
        "allocated": memory.allocated,
        "reserved": memory.reserved,
        "free": memory.free,
        "largest_free": memory.largest_free,
        "stuck": memory.stuck,
    }
    for name, value in figures.items():
        _say(builder, time, gpu, f"snapshot/{name}_bytes", str(value))


def _add_series(builder: TimelineBuilder, history: pl.DataFrame, gpu: int, time: int) -> None:
    """Add the allocated and reserved memory over time, and the peak."""
    if history.is_empty():
        return
    _say(builder, time, gpu, "snapshot/peak_allocated_bytes", str(round(max(history["allocated"]))))
    for name in ("allocated", "reserved"):
        rows = history.select("time", pl.col(name).alias("value")).drop_nulls("time")
        changed = rows.filter((pl.col("value") != pl.col("value").shift(1)).fill_null(True))
        # Of several events within a microsecond, only the last value.
        moments = changed.unique("time", keep="last", maintain_order=True)
        counter = builder.counter(gpu, f"{name}_bytes")
        constants = (pl.lit(counter).alias("track"), pl.lit(SOURCE).alias("source"))
        builder.add("samples", moments.with_columns(*constants))


def _add_returns(builder: TimelineBuilder, events: Sequence[MemoryEvent], gpu: int, time: int) -> None:
    """Add how often memory was requested from the driver and returned to it, how much, and at which lines."""
    if not events:
        return
    returned = [event for event in events if event.action in RETURNS]
    first = next((number for number, event in enumerate(events) if event.action in RETURNS), len(events))
    again = [event for event in events[first:] if event.action in REQUESTS]
    figures = {
        "driver_requests": sum(event.action in REQUESTS for event in events),
        "driver_returns": len(returned),
        "returned_bytes": sum(event.size for event in returned),
        "requests_after_return": len(again),
        "requested_again_bytes": sum(event.size for event in again),
    }
    for name, value in figures.items():
        _say(builder, time, gpu, f"snapshot/{name}", str(value))
    groups = [Group(event.size, 1, event.stack) for event in returned]
    _add_lines(builder, groups, "segment_free", gpu, time)


def _add_shortages(
    builder: TimelineBuilder, events: Sequence[MemoryEvent], history: pl.DataFrame, process: int
) -> None:
    """Add a mark for each time that memory ran out, as the recorder writes it."""
    for event, (allocated, reserved) in zip(
        events, history.select("allocated", "reserved").iter_rows(), strict=True
    ):
        if event.action != "oom":
            continue
        held = [round(allocated), round(reserved)]
        words = [event.device, event.size, "", event.device_free, *held, *(users_line(event.stack) or ())]
        builder.add_row(
            "marks",
            time=event.time or 0,
            track=process,
            name="out_of_memory",
            detail=FIELD_SEPARATOR.join(str(word) for word in words),
            source=SOURCE,
        )


def _say(builder: TimelineBuilder, time: int, track: int, key: str, value: str) -> None:
    """Add one fact."""
    builder.add_row("facts", time=time, track=track, key=key, value=plain_text(value)[:300], source=SOURCE)
