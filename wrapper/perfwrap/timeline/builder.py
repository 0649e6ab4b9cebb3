"""Builds a timeline: tracks by their identity, tables in pieces, sorted at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from perfwrap.redaction import masked
from perfwrap.timeline.constant_columns import without_copies
from perfwrap.timeline.model import SCHEMAS, TIME_COLUMN, Timeline, empty
from perfwrap.timeline.operation_window import OperationWindow

TABLES = tuple(name for name in SCHEMAS if name != "tracks")

TEXTS = {"facts": "value", "marks": "detail", "coverage": "note"}
"""Columns with texts of the program, which may contain a secret in the files of other tools."""

RANGES = ("nvtx", "step")
"""Operations of spans that the program itself named."""

LARGEST, LARGEST_RANK = 1 << 63, 1 << 31

UNITS = (
    ("_bytes_per_s", "bytes/s"),
    ("_per_s", "1/s"),
    ("_bytes", "bytes"),
    ("_share", "share"),
    ("_watts", "watts"),
    ("_joules", "joules"),
    ("_celsius", "celsius"),
    ("_hertz", "hertz"),
    ("_cores", "cores"),
)
"""Units by the suffix of a metric's name, the longer first."""


class TimelineBuilder:
    """Collects the rows that sources read; ``build`` sorts them and returns the timeline."""

    def __init__(self) -> None:
        self._tracks: list[dict[str, Any]] = []
        self._ids: dict[tuple[object, ...], int] = {}
        self._latest: dict[tuple[str, int], int] = {}
        self._pieces: dict[str, list[pl.DataFrame]] = {table: [] for table in TABLES}
        self._rows: dict[str, list[dict[str, object]]] = {table: [] for table in TABLES}
        self._operations: list[OperationWindow] = []
        self._warnings: list[str] = []

    def host(self, name: str) -> int:
        """Return the track of a host."""
        return self._track(("host", name), kind="host", name=name, host=name)

    def process(self, host: str, pid: int, identity: str = "") -> int:
        """Return the track of a process; ``identity`` distinguishes processes with one pid (exec, reuse)."""
        key = ("process", host, pid, identity)
        process = self._track(
            key,
            kind="process",
            name=f"process {pid}",
            parent=self.host(host),
            host=host,
            pid=pid,
            role="other",
        )
        self._latest[host, pid] = process
        return process

    def latest_process(self, host: str, pid: int) -> int:
        """Return the track of the last added process with that pid; a new one if there is none."""
        found = self._latest.get((host, pid))
        return self.process(host, pid) if found is None else found

    def process_of(self, host: str, pid: int, start_ticks: str) -> int:
        """Return the track of the process with that start, if a journal has it; else the last one with that pid."""
        known = [
            track
            for key, track in self._ids.items()
            if key[:3] == ("process", host, pid) and str(key[3]).startswith(f"{start_ticks}-")
        ]
        return known[-1] if known else self.latest_process(host, pid)

    def native_thread(self, process: int, native_id: int | None, name: str) -> int:
        """Return the track of the thread with that system id; a new one if there is none."""
        if native_id is not None:
            for track in self._tracks:
                if track["kind"] == "thread" and track["parent"] == process and track["tid"] == native_id:
                    return int(track["id"])
        key = ("native", process, name if native_id is None else native_id)
        owner = self._tracks[process]
        return self._track(
            key,
            kind="thread",
            name=name or f"thread {native_id}",
            parent=process,
            rank=owner["rank"],
            host=owner["host"],
            pid=owner["pid"],
            tid=native_id,
        )

    def thread(self, process: int, index: int, name: str, native_id: int | None) -> int:
        """Return the track of a thread; ``index`` distinguishes the threads of a process."""
        owner = self._tracks[process]
        return self._track(
            ("thread", process, index),
            kind="thread",
            name=name or f"thread {index}",
            parent=process,
            rank=owner["rank"],
            host=owner["host"],
            pid=owner["pid"],
            tid=native_id,
        )

    def known_thread(self, process: int, index: int) -> int:
        """Return the track of a thread that was added with that index; -1 if none was."""
        return self._ids.get(("thread", process, index), -1)

    def stream(self, process: int, index: int, name: str) -> int:
        """Return the track of a GPU stream in one process; ``index`` is that of its records."""
        owner = self._tracks[process]
        return self._track(
            ("thread", process, index),
            kind="stream",
            name=name,
            parent=process,
            rank=owner["rank"],
            host=owner["host"],
            pid=owner["pid"],
        )

    def device(self, host: str, entity: str) -> int:
        """Return the track of a monitored device: ``gpu/0``, ``cpu/3``, ``cgroup``, or the host itself."""
        if entity == "host":
            return self.host(host)
        kind = entity.partition("/")[0]
        return self._track(
            ("device", host, entity), kind=kind, name=entity, parent=self.host(host), host=host
        )

    def counter(self, owner: int, metric: str) -> int:
        """Return the track of one series of values about the track ``owner``."""
        unit = next((unit for suffix, unit in UNITS if metric.endswith(suffix)), "count")
        host = self._tracks[owner]["host"]
        pid = self._tracks[owner]["pid"]
        return self._track(
            ("counter", owner, metric),
            kind="counter",
            name=metric,
            parent=owner,
            unit=unit,
            host=host,
            pid=pid,
        )

    def describe(self, track: int, **columns: object) -> None:
        """Set columns of a track, e.g. name, role or rank."""
        _demand_in_range(columns)
        self._tracks[track].update(columns)

    def column(self, track: int, name: str) -> Any:
        """Return the current value of one column of a track."""
        return self._tracks[track][name]

    def add(self, table: str, columns: pl.DataFrame | Mapping[str, Any]) -> None:
        """Append rows; columns that are not given are null; ValueError for columns that the table does not have."""
        schema = SCHEMAS[table]
        frame = columns if isinstance(columns, pl.DataFrame) else pl.DataFrame(dict(columns))
        unknown = set(frame.columns) - set(schema)
        if unknown:
            raise ValueError(f"{table} has no columns {sorted(unknown)}")
        if frame.height:
            self._pieces[table].append(
                frame.select(
                    pl.col(name).cast(kind) if name in frame.columns else pl.lit(None, kind).alias(name)
                    for name, kind in schema.items()
                )
            )

    def add_row(self, table: str, **values: object) -> None:
        """Append one row; ValueError for a column that the table does not have."""
        unknown = values.keys() - SCHEMAS[table].keys()
        if unknown:
            raise ValueError(f"{table} has no columns {sorted(unknown)}")
        # Found only at the end, it would fail the whole timeline instead of the file that it comes from.
        _demand_in_range(values)
        self._rows[table].append(values)

    def add_operations(self, window: OperationWindow) -> None:
        """Append a dataflow window."""
        self._operations.append(window)

    def warn(self, text: str) -> None:
        """Keep a sentence for the user; the same sentence only once."""
        text = masked(text)
        if text not in self._warnings:
            self._warnings.append(text)

    def build(self, run: Mapping[str, Any]) -> Timeline:
        """Return the finished timeline; the builder is used up."""
        tables = {table: self._finish(table) for table in TABLES}
        tracks = pl.DataFrame(list(map(_named_safely, self._tracks)), schema=SCHEMAS["tracks"], orient="row")
        return Timeline(
            run=dict(run),
            tracks=tracks,
            operation_windows=tuple(self._operations),
            warnings=tuple(self._warnings),
            **tables,
        )

    def _finish(self, table: str) -> pl.DataFrame:
        """Return the sorted table and release its pieces."""
        pieces, self._pieces[table] = self._pieces[table], []
        if self._rows[table]:
            pieces.append(pl.DataFrame(self._rows.pop(table), schema=SCHEMAS[table], orient="row"))
        if not pieces:
            return empty(table)
        # Of spans that start together, longer ones come first, so that a span comes before the spans inside it.
        time = pl.col(TIME_COLUMN[table])
        later = -pl.col("duration") if table == "spans" else time
        whole = _without_secrets(table, pl.concat(pieces))
        pieces.clear()
        in_order = (time.diff() > 0) | ((time.diff() == 0) & (later.diff() >= 0))
        if whole.select(in_order.fill_null(True).all()).item():
            return without_copies(whole)
        order = whole.select(pl.arg_sort_by(time, later, maintain_order=True).alias("order"))["order"]
        # Column by column, so that there are never two copies of a large table.
        return without_copies(
            pl.DataFrame([whole.drop_in_place(name).gather(order) for name in whole.columns])
        )

    def _track(self, key: tuple[object, ...], **columns: object) -> int:
        """Return the id of the track with that key; the first request creates it."""
        if key not in self._ids:
            _demand_in_range(columns)
            self._ids[key] = len(self._tracks)
            row = dict.fromkeys(SCHEMAS["tracks"])
            self._tracks.append({**row, **columns, "id": len(self._tracks)})
        return self._ids[key]


def _demand_in_range(values: Mapping[str, object]) -> None:
    """Raise OverflowError for a number that does not fit into a column."""
    for name, value in values.items():
        limit = LARGEST_RANK if name == "rank" else LARGEST
        if type(value) is int and not -limit <= value < limit:
            raise OverflowError(f"its {name} is out of range")


def _named_safely(track: dict[str, Any]) -> dict[str, Any]:
    """Return a track's columns with possible secrets in its name masked: programs name their threads."""
    return {**track, "name": masked(track["name"])} if track["name"] else track


def _without_secrets(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the table with possible secrets in its texts masked."""
    if table in ("spans", "sums"):
        mine = pl.col("operation").is_in(RANGES)
        column, texts = "name", frame.select(pl.col("name").filter(mine))["name"]
    elif table in TEXTS:
        column = TEXTS[table]
        mine, texts = pl.lit(True), frame[column]
    else:
        return frame
    kept = {text: masked(text) for text in texts.unique().drop_nulls().to_list()}
    changed = {text: new for text, new in kept.items() if new != text}
    if not changed:
        return frame
    return frame.with_columns(pl.when(mine).then(pl.col(column).replace(changed)).otherwise(pl.col(column)))
