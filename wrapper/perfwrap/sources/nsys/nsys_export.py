"""Reads Nsight Systems captures that were exported to SQLite.

The schema is described in NVIDIA's Nsight Systems User Guide, "SQLite Schema Reference", and in each file's own
comments; seen: exports of nsys 2022.1 to 2026.2, schemas 2.9 to 3.25. Enumerations are read from the file's own
tables, columns by their names.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from perfwrap.errors import PerfwrapError
from perfwrap.sources.nsys import nsys_gpu, nsys_host, nsys_notes
from perfwrap.sources.nsys.nsys_capture import Capture, begin
from perfwrap.sources.nsys.nsys_file import SQLITE_MAGIC, opened, plain_head
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.clocks import HostClock

REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"
"""First bytes of nsys reports (.nsys-rep, .qdrep), which only nsys can read."""
OWN_TABLES = ("StringIds", *nsys_notes.VERSION_TABLES, nsys_gpu.KERNEL, nsys_host.RUNTIME)


def recognises(path: Path, head: bytes) -> bool:
    """Return whether a file is an SQLite database or an nsys report; ``head`` are the first bytes of its content."""
    return plain_head(head).startswith((SQLITE_MAGIC, REPORT_MAGIC))


def add(
    builder: TimelineBuilder, path: Path, clock: HostClock | None = None, host: str | None = None
) -> None:
    """Add a capture: on the wall clock, or with ``clock`` on the monotonic clock of the run it belongs to.

    ``host`` is the machine's name in the run, used instead of the file's. Raises PerfwrapError if the file is not an
    nsys export.
    """
    with path.open("rb") as start:
        head = start.read(4096)
    if plain_head(head).startswith(REPORT_MAGIC):
        raise PerfwrapError(
            f"{path} is an nsys report, which only nsys can read.",
            f"Export it first: nsys export --type sqlite {path.name}",
        )
    with opened(path) as file:
        if not any(table in file.columns for table in OWN_TABLES):
            raise PerfwrapError(
                f"{path} is a database, but not an nsys export.",
                "Create one with: nsys export --type sqlite REPORT",
            )
        _add(begin(file, builder, path, clock, host))


def _add(capture: Capture) -> None:
    """Add all events, and then notes about missing ones."""
    work = nsys_gpu.add(capture)
    calls = nsys_host.add_calls(capture)
    nsys_host.add_library_calls(capture)
    unended = nsys_host.add_nvtx(capture)
    times = pl.concat([work.select("start", "end"), calls.select("start", "end")])
    nsys_notes.add(capture, times, work, calls, unended)
