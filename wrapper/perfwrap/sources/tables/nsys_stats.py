"""Reads the CSV tables of ``nsys stats --format csv``, and pipit's event tables of the same data.

The reports are described in NVIDIA's Nsight Systems User Guide, "Report Scripts": cuda_gpu_trace, cuda_api_trace,
nvtx_pushpop_trace, nvtx_startend_trace and cuda_gpu_kern_sum. pipit's tables have a row for each Enter and Leave.
Times are relative to the start of the session, which the table does not contain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl
from msgspec import Struct

from perfwrap.errors import PerfwrapError
from perfwrap.sources.nsys.nsys_capture import STREAM_INDEX
from perfwrap.sources.nsys.nsys_gpu import COPIES, COPY_KIND
from perfwrap.sources.nsys.nsys_host import VERSION_SUFFIX
from perfwrap.sources.nvtx_ranges import ranges
from perfwrap.sources.tables.csv_text import decoded, nanoseconds_in, number, read_text, rows
from perfwrap.timeline.builder import TimelineBuilder

SOURCE = "nsys_stats"
HOST = "host"
TABLES = {
    "gpu": ({"Start", "Duration", "CorrId", "Device", "Strm", "Name"}, "cuda_gpu_trace"),
    "api": ({"Start", "Duration", "Name", "CorrID", "Pid", "Tid"}, "cuda_api_trace"),
    "ranges": ({"Start", "End", "Name", "PID", "TID"}, "nvtx_pushpop_trace"),
    "kernels": ({"Total Time", "Instances", "Name"}, "cuda_gpu_kern_sum"),
    "pipit": ({"Name", "Event Type", "Timestamp", "_matching_timestamp"}, "event table"),
}
"""Columns, without their units, that identify each table, and its name."""
UNIT = re.compile(r"^(?P<name>.*?) ?\((?P<unit>[^)]*)\)$")
COPY = re.compile(
    r"memcpy.*?(?P<source>Host|Device|H|D|P|Peer)(?:-to-|to)(?P<to>Host|Device|H|D|P|Peer)", re.I
)
BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
RANGES = {"start": pl.Int64, "end": pl.Int64, "globalTid": pl.Int64, "name": pl.String, "domain": pl.String}


class Table(Struct, frozen=True):
    """One table: its kind, the position and unit of each column, and its rows."""

    kind: str
    places: dict[str, int]
    units: dict[str, str]
    rows: list[list[str]]

    def text(self, row: list[str], name: str) -> str:
        """Return a cell, empty if there is none."""
        place = self.places.get(name, -1)
        return row[place] if 0 <= place < len(row) else ""

    def time(self, row: list[str], name: str) -> int | None:
        """Return a time in nanoseconds; the unit is in the header."""
        amount = number(self.text(row, name))
        scale = nanoseconds_in(self.units.get(name, "ns")) or 1
        return None if amount is None else round(amount * scale)

    def whole(self, row: list[str], name: str) -> int | None:
        """Return a whole number."""
        amount = number(self.text(row, name))
        return None if amount is None else int(amount)


def recognises(path: Path, head: bytes) -> bool:
    """Return whether a file begins with one of the tables; ``head`` are the first bytes of its content."""
    return any(_kind(line) for line in decoded(head).splitlines())


def add(builder: TimelineBuilder, path: Path) -> None:
    """Add all tables of a file; PerfwrapError if there is none."""
    found = list(_tables(read_text(path)))
    if not found:
        raise PerfwrapError(
            f"{path} contains no nsys stats table.", "Create one with: nsys stats --format csv REPORT"
        )
    # Tables of one report share their correlation ids: `nsys stats -o X` writes X_cuda_gpu_trace.csv and so on.
    report = re.sub(r"_?(cuda|nvtx|gpu).*$", "", path.stem)
    process = builder.process(HOST, 0, f"{SOURCE} {report}")
    builder.describe(process, name=report or path.stem)
    for table in found:
        _ADD[table.kind](builder, table, process)
    builder.warn(f"{path.name} has no start time, so its times cannot be aligned with other recordings.")


def _tables(text: str) -> Iterator[Table]:
    """Return the tables of a text; other lines are messages of nsys between them."""
    lines = text.splitlines(keepends=True)
    begins = [place for place, line in enumerate(lines) if _kind(line)]
    for begin, end in zip(begins, [*begins[1:], len(lines)], strict=False):
        cells = rows("".join(lines[begin:end]))
        names, units = _columns(next(cells))
        kind = _kind(lines[begin]) or ""
        wanted = [row for row in cells if len(row) == len(names)]
        yield Table(kind, {name: place for place, name in enumerate(names)}, units, wanted)


def _kind(line: str) -> str | None:
    """Return which table a line is the header of, if any."""
    if "," not in line:
        return None
    names = set(_columns(next(rows(line), []))[0])
    return next((kind for kind, (wanted, _) in TABLES.items() if wanted <= names), None)


def _columns(header: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the names of columns without their units, and the units."""
    names, units = [], {}
    for cell in header:
        found = UNIT.match(cell.strip())
        name = found["name"] if found and found["name"] else cell.strip()
        names.append(name)
        if found:
            units[name] = found["unit"]
    return names, units


def _add_gpu(builder: TimelineBuilder, table: Table, process: int) -> None:
    """Add the GPU work."""
    for row in table.rows:
        start, duration = table.time(row, "Start"), table.time(row, "Duration")
        if start is None or duration is None:
            continue
        device = re.search(r"\((\d+)\)\s*$", table.text(row, "Device"))
        size = number(table.text(row, "Bytes"))
        scale = BYTES.get(table.units.get("Bytes", "B").lower(), 1)
        builder.add_row(
            "spans",
            start=start,
            duration=duration,
            track=_stream(builder, process, int(device[1]) if device else 0, table.whole(row, "Strm") or 0),
            **_work(table.text(row, "Name"), None if size is None else round(size * scale)),
            link=_link(process, table.whole(row, "CorrId")),
            source=SOURCE,
        )


def _add_api(builder: TimelineBuilder, table: Table, process: int) -> None:
    """Add the calls of CUDA."""
    for row in table.rows:
        start, duration = table.time(row, "Start"), table.time(row, "Duration")
        if start is None or duration is None:
            continue
        name = re.sub(VERSION_SUFFIX, "", table.text(row, "Name"))
        builder.add_row(
            "spans",
            start=start,
            duration=duration,
            track=_thread(builder, table.whole(row, "Pid"), table.whole(row, "Tid"), process),
            name=name,
            category="other",
            operation=name,
            link=_link(process, table.whole(row, "CorrID")),
            source=SOURCE,
        )


def _add_ranges(builder: TimelineBuilder, table: Table, process: int) -> None:
    """Add NVTX ranges; their names begin with the domain and a colon, or just the colon."""
    found = []
    for row in table.rows:
        start, end = table.time(row, "Start"), table.time(row, "End")
        if start is not None and end is not None and end >= start:
            track = _thread(builder, table.whole(row, "PID"), table.whole(row, "TID"), process)
            domain, colon, name = table.text(row, "Name").partition(":")
            # Names of functions have two colons, and an old nsys wrote no domain.
            if not colon or name.startswith(":"):
                domain, name = "", table.text(row, "Name")
            found.append((start, end, track, name, domain))
    classified = ranges(pl.DataFrame(found, schema=RANGES, orient="row"), is_recorded=False)
    if found:
        builder.add(
            "spans",
            classified.select(
                "start",
                (pl.col("end") - pl.col("start")).alias("duration"),
                pl.col("globalTid").alias("track"),
                *("name", "category", "operation", "step"),
                pl.lit(SOURCE).alias("source"),
            ),
        )


def _add_kernels(builder: TimelineBuilder, table: Table, process: int) -> None:
    """Add how often and how long each kernel ran; this table has no times."""
    for row in table.rows:
        duration, count = table.time(row, "Total Time"), table.whole(row, "Instances")
        if duration is not None and count is not None:
            builder.add_row(
                "sums",
                start=0,
                end=0,
                track=process,
                name=table.text(row, "Name"),
                category="kernel",
                operation="kernel",
                count=count,
                duration=duration,
                rest=False,
                source=SOURCE,
            )


def _add_pipit(builder: TimelineBuilder, table: Table, process: int) -> None:
    """Add the pairs of Enter and Leave of a pipit table, each written at its Enter."""
    on_gpu = "streamId" in table.places
    for row in table.rows:
        start, end = table.time(row, "Timestamp"), table.whole(row, "_matching_timestamp")
        if table.text(row, "Event Type") != "Enter" or start is None or end is None:
            continue
        name = table.text(row, "Name")
        if on_gpu:
            stream = table.whole(row, "streamId") or 0
            size = table.whole(row, "bytes")
            direction = COPIES.get(name.removeprefix(COPY_KIND), "copy")
            columns = _copy(direction, size) if name.startswith(COPY_KIND) else _work(name, size)
            track = _stream(builder, process, 0, stream)
        else:
            name = re.sub(VERSION_SUFFIX, "", name)
            columns = {"name": name, "category": "other", "operation": name}
            track = _thread(builder, table.whole(row, "Process"), table.whole(row, "Thread"), process)
        builder.add_row("spans", start=start, duration=end - start, track=track, **columns, source=SOURCE)


_ADD = {
    "gpu": _add_gpu,
    "api": _add_api,
    "ranges": _add_ranges,
    "kernels": _add_kernels,
    "pipit": _add_pipit,
}


def _work(name: str, size: int | None) -> dict[str, object]:
    """Return name, category, operation and value of GPU work, by the name that nsys prints."""
    if not name.lower().startswith(("[cuda mem", "[cuda um")):
        return {"name": name, "category": "kernel", "operation": "kernel", "value": None}
    if "memset" in name.lower():
        return {"name": "memset", "category": "memset", "operation": "memset", "value": size}
    found = COPY.search(name)
    return _copy(f"{found['source'][0]}2{found['to'][0]}".lower() if found else "copy", size)


def _copy(operation: str, size: int | None) -> dict[str, object]:
    """Return name, category, operation and value of a copy."""
    return {"name": operation, "category": "copy", "operation": operation, "value": size}


def _stream(builder: TimelineBuilder, process: int, device: int, stream: int) -> int:
    """Return the track of a stream."""
    return builder.stream(process, STREAM_INDEX + (device << 32) + stream, f"gpu/{device} stream {stream}")


def _thread(builder: TimelineBuilder, pid: int | None, tid: int | None, process: int) -> int:
    """Return the track of a thread; that of the report if the table has none."""
    if pid is None or tid is None:
        return process
    return builder.native_thread(builder.latest_process(HOST, pid), tid, "")


def _link(process: int, correlation: int | None) -> int | None:
    """Return the number that connects a call with the work that it launched."""
    return None if not correlation else (process << 32) + correlation
