"""Reads Nsight Systems captures that were exported to SQLite.

The schema is described in NVIDIA's Nsight Systems User Guide, "SQLite Schema Reference", and in each file's own
comments; seen: exports of nsys 2022.1 to 2026.2, schemas 2.9 to 3.25. Enumerations are read from the file's own
tables, columns by their names.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from perfwrap.errors import PerfwrapError
from perfwrap.sources import nsys_gpu, nsys_host, nsys_notes
from perfwrap.sources.nsys_capture import Capture, begin
from perfwrap.sources.nsys_file import SQLITE_MAGIC, opened, plain_head
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.clocks import HostClock

REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"
"""Begins nsys's own reports (.nsys-rep, .qdrep), which only nsys can read."""
OWN_TABLES = ("StringIds", *nsys_notes.VERSION_TABLES, nsys_gpu.KERNEL, nsys_host.RUNTIME)


def recognises(path: Path, head: bytes) -> bool:
    """Say whether a file is an SQLite database or a report of nsys's; ``head`` is how its content begins."""
    return plain_head(head).startswith((SQLITE_MAGIC, REPORT_MAGIC))


def add(
    builder: TimelineBuilder, path: Path, clock: HostClock | None = None, host: str | None = None
) -> None:
    """Add a capture: on the wall clock, or with ``clock`` on the monotonic clock of the run it belongs to.

    ``host`` is the name that the run has for the machine, in place of the file's. Raises PerfwrapError for
    what is no export of nsys.
    """
    with path.open("rb") as start:
        head = start.read(4096)
    if plain_head(head).startswith(REPORT_MAGIC):
        raise PerfwrapError(
            f"{path} is nsys's own report, which only nsys can read.",
            f"Export it first: nsys export --type sqlite {path.name}",
        )
    with opened(path) as file:
        if not any(table in file.columns for table in OWN_TABLES):
            raise PerfwrapError(
                f"{path} is a database, but no export of nsys.", "nsys export --type sqlite REPORT makes one."
            )
        _add(begin(file, builder, path, clock, host))


def _add(capture: Capture) -> None:
    """Add everything, and then what is missing."""
    work = nsys_gpu.add(capture)
    calls = nsys_host.add_calls(capture)
    nsys_host.add_library_calls(capture)
    unended = nsys_host.add_nvtx(capture)
    times = pl.concat([work.select("start", "end"), calls.select("start", "end")])
    nsys_notes.add(capture, times, work, calls, unended)
