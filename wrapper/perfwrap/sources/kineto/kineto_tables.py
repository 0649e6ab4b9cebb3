"""Adds a PyTorch trace to the tables of a timeline."""

from __future__ import annotations

from typing import Any

import polars as pl

from perfwrap.sources.kineto import kineto_facts
from perfwrap.sources.kineto.kineto_operations import Operations
from perfwrap.sources.kineto.kineto_process import SOURCE, KinetoProcess
from perfwrap.sources.kineto.kineto_shapes import MARK
from perfwrap.sources.kineto.trace_words import copy_direction, is_collective, python_place, step_number

OPERATIONS = {
    "op": "op",
    "range": "nvtx",
    "python": "python",
    "overhead": "profiler_overhead",
    "kernel": "kernel",
    "memset": "memset",
    "gpu_range": "gpu_range",
    "gpu_sync": "gpu_sync",
}
"""Operation of each kind; that of a call is its name, that of a copy its direction."""

CHUNK = 1 << 18
"""Rows that are converted to spans at once."""

CATEGORIES = {"kernel": "kernel", "copy": "copy", "memset": "memset"}
"""Categories of what a GPU does; the others are ``other``."""


class KinetoTables:
    """One trace on its way into a timeline."""

    def __init__(self, process: KinetoProcess) -> None:
        self._process, self._builder = process, process.builder
        names = process.events.names.values
        self._names = pl.Series("name", names, dtype=pl.String)

    def add(self) -> None:
        """Add all rows."""
        self._add_gpu()
        self._add_host()
        self._add_samples()
        self._add_shapes()
        self._add_stream_waits()
        if self._process.alone:
            Operations(self._process).add()
        kineto_facts.add(self._process)

    def _add_gpu(self) -> None:
        """Add what the GPUs did."""
        rows = self._process.on_gpu
        if rows.is_empty():
            return
        names = self._process.events.names.values
        direction = self._by_name(rows, [copy_direction(name) for name in names])
        kind, words = pl.col("kind"), pl.col("kind").cast(pl.String)
        self._add(
            rows.with_columns(
                self._process.stream_tracks(rows),
                self._process.links(rows["owner"], rows["link"]),
                pl.when(kind == "copy")
                .then(direction)
                .otherwise(words.replace(OPERATIONS))
                .alias("operation"),
                words.replace_strict(CATEGORIES, default="other").alias("category"),
                pl.when(kind.is_in(["copy", "memset"])).then("bytes").alias("value"),
                pl.lit(None, pl.Int32).alias("step"),
            )
        )

    def _add_host(self) -> None:
        """Add functions, calls and ranges of threads, some at a time, so that temporary copies stay small."""
        on_host = pl.col("kind").is_in(["op", "call", "python", "range", "overhead"])
        for piece in self._process.rows.iter_slices(CHUNK):
            rows = piece.filter(on_host)
            if rows.height:
                self._add_threads(rows)

    def _add_threads(self, rows: pl.DataFrame) -> None:
        """Add functions, calls and ranges."""
        names = self._process.events.names.values
        steps = self._by_name(rows, [step_number(name) for name in names])
        shared = self._by_name(rows, [is_collective(name) for name in names])
        marked = pl.when(steps.is_not_null()).then(pl.lit("step")).when(shared).then(pl.lit("collective"))
        kind = pl.col("kind")
        call = pl.when(kind == "call").then(self._by_name(rows, names))
        plain = pl.when(kind.is_in(["op", "range"])).then(marked)
        found = rows.with_columns(
            self._process.thread_tracks(rows["thread"]),
            self._process.links(self._process.owner_tracks(rows["thread"]), rows["link"]),
            steps.alias("step"),
            pl.coalesce(call, plain, kind.cast(pl.String).replace(OPERATIONS)).alias("operation"),
            plain.fill_null("other").alias("category"),
            pl.lit(None, pl.Int64).alias("value"),
        )
        self._add(found, python=True)

    def _add(self, rows: pl.DataFrame, python: bool = False) -> None:
        """Add rows to the spans, with their names and, for Python's functions, their places."""
        columns = ["start", "duration", "track", "category", "operation", "step", "link", "value"]
        frame = rows.select(
            *columns, self._names.gather(rows["name"].cast(pl.UInt32)), pl.lit(SOURCE).alias("source")
        )
        if python and (rows["kind"] == "python").any():
            places = [python_place(name) or (None, None, None) for name in self._names.to_list()]
            table = pl.DataFrame(
                places, schema={"file": pl.String, "line": pl.Int32, "function": pl.String}, orient="row"
            )
            place = pl.when(rows["kind"] == "python").then(rows["name"].cast(pl.UInt32))
            frame = frame.with_columns(table.select(pl.all().gather(rows.select(place.alias("at"))["at"])))
        self._builder.add("spans", frame)

    def _by_name(self, rows: pl.DataFrame, values: list[object]) -> pl.Series:
        """Return for each row what was found out about its name."""
        kind = next((type(value) for value in values if value is not None), str)
        types = {int: pl.Int32, bool: pl.Boolean, str: pl.String}
        return pl.Series(values, dtype=types[kind]).gather(rows["name"].cast(pl.UInt32))

    def _add_samples(self) -> None:
        """Add the values of counters, and how much memory was taken."""
        process = self._process
        rows = process.events.instants()
        if rows.is_empty():
            return
        series = process.events.series.values
        counters = [
            self._builder.counter(self._owner(kind, number), metric) for kind, number, metric in series
        ]
        self._builder.add(
            "samples",
            rows.select(
                process.times(rows["time"]),
                pl.Series("track", counters, dtype=pl.Int32).gather(rows["series"].cast(pl.UInt32)),
                "value",
                pl.lit(SOURCE).alias("source"),
            ),
        )

    def _owner(self, kind: str, number: Any) -> int:
        """Return the track that a series is about: a GPU, or a process, the main one if unknown."""
        process = self._process
        if kind == "gpu":
            return self._builder.device(process.host, f"gpu/{number}")
        return process.process(number) if number in process.pids else process.main

    def _add_shapes(self) -> None:
        """Add a mark with its sizes at the beginning of each matrix operation whose sizes were recorded."""
        process = self._process
        rows = process.events.matrices()
        if rows.is_empty():
            return
        texts = pl.Series("detail", process.events.shapes.values, dtype=pl.String)
        self._builder.add(
            "marks",
            rows.select(
                process.times(rows["time"]),
                process.thread_tracks(rows["thread"]),
                pl.lit(MARK).alias("name"),
                texts.gather(rows["text"].cast(pl.UInt32)),
                pl.lit(SOURCE).alias("source"),
            ),
        )

    def _add_stream_waits(self) -> None:
        """Add a mark for each wait of a stream for an event of another one, where both calls were recorded."""
        process = self._process
        if not process.events.stream_waits:
            return
        calls = process.rows.filter(pl.col("kind") == "call", pl.col("link").is_not_null())
        begun = calls.group_by("link").agg(pl.col("start").min())
        keys = ("link", "device", "stream", "recorded_link", "source")
        waits = pl.DataFrame(process.events.stream_waits, schema=dict.fromkeys(keys, pl.Int64), orient="row")
        rows = (
            waits.join(begun.rename({"start": "time"}), on="link", maintain_order="left")
            .join(
                begun.rename({"link": "recorded_link", "start": "recorded"}),
                on="recorded_link",
                maintain_order="left",
            )
            .drop_nulls()
            .filter(pl.col("source") >= 0, pl.col("stream") >= 0)
        )
        places = {
            (device, stream): process.stream(process.main, device, stream)
            for name in ("stream", "source")
            for device, stream in rows.select("device", name).iter_rows()
        }
        for time, device, stream, source, recorded in rows.select(
            "time", "device", "stream", "source", "recorded"
        ).iter_rows():
            self._builder.add_row(
                "marks",
                time=time,
                track=places[device, stream],
                name="stream_wait",
                detail=f"{places[device, source]} {recorded}",
                source=SOURCE,
            )
