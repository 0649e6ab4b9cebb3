"""Reads the traces that torch.profiler writes (Kineto): Chrome's trace format with PyTorch's categories.

The format is Google's "Trace Event Format"; PyTorch's part of it is written by libkineto's ``output_json.cpp``.
Seen: traces of PyTorch 1.8 (2020) to 2.13, schemaVersion absent and 1, times in whole microseconds, with fractions,
and relative to ``baseTimeNanoseconds``; with NVIDIA, AMD and no GPUs.
"""

from __future__ import annotations

import re
from pathlib import Path

from perfwrap.sources.kineto.kineto_process import KinetoProcess
from perfwrap.sources.kineto.kineto_tables import KinetoTables
from perfwrap.sources.kineto.trace_events import TraceEvents
from perfwrap.sources.kineto.trace_file import TraceFile
from perfwrap.sources.time_part import Part
from perfwrap.sources.unpacked import GZIP, first_bytes
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.clocks import HostClock

HEAD_BYTES = 1 << 18
SIGNS = re.compile(
    rb'"(?:traceEvents|deviceProperties|baseTimeNanoseconds)"\s*:|"ph"\s*:\s*"|"schemaVersion"\s*:\s*1\b'
)


def recognises(path: Path, head: bytes) -> bool:
    """Return whether a file is a Chrome trace by its first bytes, gzipped or not."""
    start = first_bytes(path, HEAD_BYTES) if head.startswith(GZIP) else head
    return start.lstrip()[:1] in (b"{", b"[") and SIGNS.search(start) is not None


def add(
    builder: TimelineBuilder, path: Path, clock: HostClock | None = None, host: str | None = None
) -> None:
    """Add a trace: on the wall clock, or with ``clock`` on the monotonic clock of the run that it belongs to.

    In a run of perfwrap, the recorder has already recorded the operations of the training thread, so only the
    profiler's events are added, to the tracks of ``host``. Unreadable parts are noted.
    """
    file, events = _read(path)
    if events.full:
        part = events.middle()
        del events
        file, events = _read(path, part)
        file.notes.append(f"it {part.sentence}")
    process = KinetoProcess(builder, file, events, clock, host)
    KinetoTables(process).add()


def _read(path: Path, part: Part | None = None) -> tuple[TraceFile, TraceEvents]:
    """Return a trace's file and its events, or those of a part."""
    file, events = TraceFile(path), TraceEvents(part)
    try:
        for piece in file.pieces():
            events.add(piece)
    except OSError as error:
        file.notes.append(f"cannot be read: {error.strerror}")
    return file, events
