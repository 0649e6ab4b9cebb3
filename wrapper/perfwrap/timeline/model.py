"""The timeline: all recorded data, as sorted columns on one clock.

Times are integer nanoseconds of CLOCK_MONOTONIC on the run's first host; values are in base units (bytes,
watts, hertz, shares from 0 to 1); every row names its source; tables are sorted by time and never change
after they are built. Missing is not zero: ``coverage`` says what was recorded, from when to when.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from perfwrap.timeline.operation_window import OperationWindow

CATEGORIES = (
    "step",
    "data",
    "transfer",
    "forward",
    "backward",
    "recompute",
    "optimizer",
    "sync",
    "checkpoint",
    "validation",
    "collective",
    "compile",
    "gc",
    "profiler",
    "kernel",
    "copy",
    "memset",
    "perfwrap",
    "other",
)
"""The categories of spans, one word each, used everywhere."""

SCHEMAS: dict[str, dict[str, Any]] = {
    # One line of the timeline. kind: host, process, thread, gpu, stream, counter, or another monitored device
    # of a host (cpu, disk, cgroup, mig: a slice of a GPU). A counter's parent is what it measures, a thread's
    # and a stream's its process, all others' their host. role (processes), as recorded: main, worker (DataLoader),
    # agent (a launcher), helper, monitor, or other when nothing was recorded inside; which of them train is a measure.
    "tracks": {
        "id": pl.Int32,
        "kind": pl.String,
        "name": pl.String,
        "parent": pl.Int32,
        "rank": pl.Int32,
        "unit": pl.String,
        "host": pl.String,
        "pid": pl.Int64,
        "tid": pl.Int64,
        "role": pl.String,
    },
    # Something that lasted. operation: the recorder's kind in lower case (data, data_end, loader_start,
    # forward, backward, gradient, optimizer, scaler_step, zero_grad, sync, save, load, gc, perfwrap, import, and gpu:
    # the GPU's work on a phase, which is on a stream's track and not part of a thread's time) or the
    # source's own word; value: bytes, batch size or flags, by operation.
    # GPU work is on a stream's track, whose name is "gpu/N stream S": category kernel (operation
    # kernel), copy (operation h2d, d2h, d2d, p2p or h2h; value: bytes) or memset (operation memset; value: bytes).
    # Its link is that of the call that launched it, which is on a thread's track with category other and, as
    # operation, the name of the API call (cudaLaunchKernel, hipLaunchKernel, cudaStreamSynchronize).
    # A framework's own functions (aten::mm) have operation op, steps that a profiler or the program marks operation
    # step and category step, other ranges of the program's operation nvtx.
    "spans": {
        "start": pl.Int64,
        "duration": pl.Int64,
        "track": pl.Int32,
        "name": pl.String,
        "category": pl.Enum(CATEGORIES),
        "operation": pl.String,
        "step": pl.Int32,
        "file": pl.String,
        "line": pl.Int32,
        "function": pl.String,
        "link": pl.Int64,
        "value": pl.Int64,
        "source": pl.String,
    },
    # Totals of thinned steps: count spans with a total duration in ns, between start and end. While detail is
    # paused, probes recorded only the number of steps (without their duration) and the waits for batches.
    "sums": {
        "start": pl.Int64,
        "end": pl.Int64,
        "track": pl.Int32,
        "name": pl.String,
        "category": pl.Enum(CATEGORIES),
        "operation": pl.String,
        "file": pl.String,
        "line": pl.Int32,
        "function": pl.String,
        "count": pl.Int64,
        "duration": pl.Int64,
        "rest": pl.Boolean,
        "source": pl.String,
    },
    # A value at a moment; the track is a counter, its unit is on the track.
    "samples": {"time": pl.Int64, "track": pl.Int32, "value": pl.Float64, "source": pl.String},
    # A call stack at a moment, or as many equal stacks as weight says, within the following seconds; frames are
    # joined by ";" from the outermost. file, line and function are the user's innermost; operation is the phase
    # or the torch function that was running, null in the user's own Python.
    "stacks": {
        "time": pl.Int64,
        "track": pl.Int32,
        "weight": pl.Int64,
        "stack": pl.String,
        "operation": pl.String,
        "file": pl.String,
        "line": pl.Int32,
        "function": pl.String,
        "source": pl.String,
    },
    # An instant with text.
    "marks": {
        "time": pl.Int64,
        "track": pl.Int32,
        "name": pl.String,
        "detail": pl.String,
        "file": pl.String,
        "line": pl.Int32,
        "function": pl.String,
        "value": pl.Float64,
        "source": pl.String,
    },
    # Facts about a process or host: settings, versions, sizes.
    "facts": {
        "time": pl.Int64,
        "track": pl.Int32,
        "key": pl.String,
        "value": pl.String,
        "source": pl.String,
    },
    # What was recorded, from when to when, how many events were lost, and why recording stopped.
    "coverage": {
        "what": pl.String,
        "track": pl.Int32,
        "start": pl.Int64,
        "end": pl.Int64,
        "lost": pl.Int64,
        "note": pl.String,
        "source": pl.String,
    },
}
"""Columns and types of each table."""

TIME_COLUMN = {
    "spans": "start",
    "sums": "start",
    "samples": "time",
    "stacks": "time",
    "marks": "time",
    "facts": "time",
    "coverage": "start",
    "tracks": "id",
}
"""What each table is sorted by."""


def empty(table: str) -> pl.DataFrame:
    """Return the table without rows."""
    return pl.DataFrame(schema=SCHEMAS[table])


@dataclass(frozen=True)
class Timeline:
    """One run. ``run`` is the manifest: command, start, end, exit, hosts, versions, clock pairs."""

    run: dict[str, Any] = field(default_factory=dict)
    tracks: pl.DataFrame = field(default_factory=lambda: empty("tracks"))
    spans: pl.DataFrame = field(default_factory=lambda: empty("spans"))
    sums: pl.DataFrame = field(default_factory=lambda: empty("sums"))
    samples: pl.DataFrame = field(default_factory=lambda: empty("samples"))
    stacks: pl.DataFrame = field(default_factory=lambda: empty("stacks"))
    marks: pl.DataFrame = field(default_factory=lambda: empty("marks"))
    facts: pl.DataFrame = field(default_factory=lambda: empty("facts"))
    coverage: pl.DataFrame = field(default_factory=lambda: empty("coverage"))
    operation_windows: tuple[OperationWindow, ...] = ()
    warnings: tuple[str, ...] = ()

    @cached_property
    def kept(self) -> dict[object, Any]:
        """Results that lookups computed from these tables."""
        return {}
