"""Reads Nsight Systems captures that were exported to SQLite or to a folder of Parquet files.

The schema is described in NVIDIA's Nsight Systems User Guide, "SQLite Schema Reference", and in each file's own
comments; seen: exports of nsys 2022.1 to 2026.2, schemas 2.9 to 3.25. Enumerations are read from the file's own
tables, columns by their names.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from perfwrap.errors import PerfwrapError
from perfwrap.sources.nsys import nsys_gpu, nsys_host, nsys_notes
from perfwrap.sources.nsys.nsys_capture import Capture, begin
from perfwrap.sources.nsys.nsys_file import SQLITE_MAGIC, opened, plain_head
from perfwrap.sources.nsys.nsys_folder import NsysFolder
from perfwrap.sources.nsys.nsys_tables import NsysTables
from perfwrap.sources.table_folders import is_folder, is_readable
from perfwrap.sources.time_part import MAX_EVENTS, Part, middle
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.clocks import HostClock

REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"
"""First bytes of nsys reports (.nsys-rep, .qdrep), which only nsys can read."""
JSON_SIGNS = (b'{"data":["[Unknown]"', b'{"Type":')
"""First bytes of `nsys export --type json` and ``jsonlines``: the texts, or an event."""
ARROW_MAGIC, HDF_MAGIC = b"\xff\xff\xff\xff", b"\x89HDF\r\n\x1a\n"
ARROW_SIGNS = (b"table_name", b"table_desc")
"""Names of values that ``arrow`` has at the beginning, about the first table."""
HDF_SIGNS = (b"globalPid", b"globalTid")
"""Names of columns, of which ``hdf`` has one near the beginning."""
HEAD_BYTES = 1 << 16
SAMPLES = 2_000
"""Rows of each table whose times are looked up to choose a part."""
OWN_TABLES = ("StringIds", *nsys_notes.VERSION_TABLES, nsys_gpu.KERNEL, nsys_host.RUNTIME)


def recognises(path: Path, head: bytes) -> bool:
    """Return whether a file is an SQLite database, or an nsys report or export in any format.

    ``head`` are the first bytes of its content; none for a folder.
    """
    start = plain_head(head)
    return start.startswith((SQLITE_MAGIC, REPORT_MAGIC)) or _is_other_export(start) or is_folder(path)


def add(
    builder: TimelineBuilder, path: Path, clock: HostClock | None = None, host: str | None = None
) -> None:
    """Add a capture: on the wall clock, or with ``clock`` on the monotonic clock of the run it belongs to.

    ``host`` is the machine's name in the run, used instead of the file's. Raises PerfwrapError if the file is not an
    nsys export to SQLite or Parquet.
    """
    with _opened(path) as file:
        if not any(table in file.columns for table in OWN_TABLES):
            raise PerfwrapError(
                f"{path} is a database, but not an nsys export.",
                "Create one with: nsys export --type sqlite REPORT",
            )
        _add(begin(file, builder, path, clock, host))


@contextmanager
def _opened(path: Path) -> Iterator[NsysTables]:
    """Open an export; PerfwrapError if it has another format."""
    if path.is_dir():
        if not is_readable(path):
            raise _unreadable(path)
        yield NsysFolder(path)
        return
    with path.open("rb") as start:
        head = plain_head(start.read(HEAD_BYTES))
    if head.startswith(REPORT_MAGIC):
        raise PerfwrapError(
            f"{path} is an nsys report, which only nsys can read.",
            f"Export it first: nsys export --type sqlite {shlex.quote(str(path))}",
        )
    if _is_other_export(head):
        raise _unreadable(path)
    with opened(path) as file:
        yield file


def _is_other_export(head: bytes) -> bool:
    """Return whether a file is an export in a format that is not read."""
    return (
        head.startswith(JSON_SIGNS)
        or (head.startswith(ARROW_MAGIC) and all(sign in head for sign in ARROW_SIGNS))
        or (head.startswith(HDF_MAGIC) and any(sign in head for sign in HDF_SIGNS))
    )


def _unreadable(path: Path) -> PerfwrapError:
    """Return the error about an export in another format."""
    return PerfwrapError(
        f"{path} is an nsys export in a format that perfwrap does not read.",
        "Export the report to SQLite or Parquet: nsys export --type sqlite REPORT.nsys-rep",
    )


def _add(capture: Capture) -> None:
    """Add all events, or a part of very many, and then notes about missing ones."""
    part = _part(capture.file)
    if part is not None:
        capture.file.part = part.start, part.end
        capture.builder.warn(f"{capture.path.name} {part.sentence}.")
    work = nsys_gpu.add(capture)
    calls = nsys_host.add_calls(capture)
    nsys_host.add_library_calls(capture)
    unended = nsys_host.add_nvtx(capture)
    nsys_notes.add(capture, work, calls, unended, part.sentence if part else None)


def _part(file: NsysTables) -> Part | None:
    """Return the part that is read, around the middle of the kernels; None if all events are read."""
    found = [file.some_starts(table, SAMPLES) for table in (*nsys_gpu.TABLES, *nsys_host.TABLES)]
    if sum(rows for rows, _ in found) <= MAX_EVENTS:
        return None
    starts = [np.array(some, dtype=np.int64) for _, some in found]
    weights = [np.full(len(some), rows / max(1, len(some))) for rows, some in found]
    kernels = np.sort(starts[0])
    around = int(kernels[kernels.size // 2]) if kernels.size else None
    return middle(np.concatenate(starts), np.concatenate(weights), MAX_EVENTS, around)
