"""Derives the training thread's operations (data, forward, backward, …) from the events of a PyTorch trace.

torch.profiler marks the waits for batches and the optimizer steps itself. A backward pass is where autograd's
functions run, on their own thread if a GPU is used. A forward is a module's call if Python was recorded, otherwise
the thread's work between its batch and the backward pass. A read of a value or a call that waits for the GPU is a
sync, a copy between host and GPU is a transfer.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.journal_format import FROM_GPU, GRAD, NON_BLOCKING, PINNED, TO_GPU, TRAINING
from perfwrap.sources.kineto.kineto_process import SOURCE, KinetoProcess
from perfwrap.sources.kineto.trace_words import (
    STEP,
    WAITS,
    copy_direction,
    is_autograd,
    operation_of,
    pinned,
    python_place,
)
from perfwrap.sources.thread_intervals import NO_INTERVAL, Flags, Integers, holder, innermost, outermost

CATEGORY = {
    "data": "data",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "zero_grad": "optimizer",
    "sync": "sync",
    "transfer": "transfer",
}
COLUMNS = ("start", "end", "operation", "name", "value")
BOUNDARIES = ("data", "optimizer", "zero_grad", "backward", "transfer")
"""Operations that limit a forward: none of them is inside one."""
MIN_FUNCTIONS = 2
"""Minimum number of functions in a forward."""


class Spans(Struct, frozen=True):
    """Intervals of one thread, sorted by start, the longer first; ``name`` numbers their names."""

    start: Integers
    end: Integers
    name: Integers

    def only(self, which: Flags) -> Spans:
        """Return the selected ones."""
        return Spans(self.start[which], self.end[which], self.name[which])

    def outer(self) -> Spans:
        """Return those that are not inside another one."""
        return self.only(outermost(self.start, self.end))


class Operations:
    """The operations of one trace's training thread."""

    def __init__(self, process: KinetoProcess) -> None:
        self._process = process
        self._names: list[str] = process.events.names.values

    def add(self) -> None:
        """Add the operations to the training thread's spans."""
        if self._thread is None:
            return
        found = pl.concat([self._named(), self._syncs(), self._transfers(), self._backwards()]).sort("start")
        found = pl.concat([found, self._forwards(found)]).sort("start", -pl.col("end"))
        found = self._with_places(self._with_modes(found))
        track = self._process.thread_tracks(pl.Series([self._thread]))[0]
        category = pl.col("operation").replace_strict(CATEGORY)
        self._process.builder.add(
            "spans",
            found.select(
                "start",
                (pl.col("end") - pl.col("start")).alias("duration"),
                pl.lit(track, pl.Int32).alias("track"),
                "name",
                category.alias("category"),
                "operation",
                "file",
                "function",
                "value",
                pl.lit(SOURCE).alias("source"),
            ),
        )

    @cached_property
    def _thread(self) -> int | None:
        """The training thread: the one with the profiler's marks, else the process's first, else the busiest."""
        rows = self._process.rows.filter(pl.col("kind").is_in(["op", "range", "python"]))
        marks = ("data", "optimizer", "zero_grad")
        sure = [
            STEP.match(name) is not None or (operation_of("range", name) or ("",))[0] in marks
            for name in self._names
        ]
        marked = rows.filter(pl.Series(sure, dtype=pl.Boolean).gather(rows["name"].cast(pl.UInt32)))
        counted = (marked if marked.height else rows)["thread"].value_counts().sort("count", descending=True)
        if counted.is_empty():
            return None
        threads = self._process.events.threads.values
        first = [number for number in counted["thread"] if threads[number][0] == threads[number][1]]
        return int(first[0] if first and not marked.height else counted["thread"][0])

    @cached_property
    def _own(self) -> pl.DataFrame:
        """The rows of the training thread."""
        return self._process.rows.filter(
            pl.col("thread") == self._thread, pl.col("kind").is_in(["op", "range", "python", "call"])
        )

    def _spans(self, kind: str, which: list[bool] | None = None) -> Spans:
        """Return the thread's spans of one kind, those with the chosen names."""
        rows = self._own.filter(pl.col("kind") == kind)
        if which is not None:
            rows = rows.filter(pl.Series(which, dtype=pl.Boolean).gather(rows["name"].cast(pl.UInt32)))
        return _as_spans(rows)

    @cached_property
    def _functions(self) -> Spans:
        """The outermost torch functions that the thread itself called, without marks of the profiler."""
        torch = [operation_of("range", name) is None and STEP.match(name) is None for name in self._names]
        return self._spans("op", torch).outer()

    @cached_property
    def _calls(self) -> pl.DataFrame:
        """The thread's calls of the GPU runtime, with ``outer``: the function that contains each call."""
        rows = self._own.filter(pl.col("kind") == "call")
        inside = holder(self._functions.start, self._functions.end, rows["start"].to_numpy())
        waits = [WAITS.match(name) is not None for name in self._names]
        return rows.with_columns(
            pl.Series("outer", inside),
            pl.Series(waits, dtype=pl.Boolean).gather(rows["name"].cast(pl.UInt32)).alias("waits"),
        )

    def _named(self) -> pl.DataFrame:
        """Return the operations known by their names: marks, ranges, and modules in Python."""
        found = []
        for kind in ("op", "range", "python"):
            meanings = [operation_of(kind, name) for name in self._names]
            for operation in ("data", "optimizer", "zero_grad", "forward", "backward"):
                chosen = [meaning is not None and meaning[0] == operation for meaning in meanings]
                spans = self._spans(kind, chosen).outer()
                names = [(meanings[number] or ("", ""))[1] for number in spans.name.tolist()]
                found.append(_table(spans.start, spans.end, operation, names))
        return pl.concat(found)

    def _syncs(self) -> pl.DataFrame:
        """Return the reads of values, and the waits for a GPU outside of reads and copies."""
        functions, calls = self._functions, self._calls
        reads = [(operation_of("op", name) or ("",))[0] == "sync" for name in self._names]
        is_read = np.array(reads, dtype=np.bool_)[functions.name]
        on_gpu = np.isin(np.arange(functions.start.size), calls["outer"].to_numpy())
        chosen = functions.only(is_read)
        names = [self._names[number].removeprefix("aten::") for number in chosen.name.tolist()]
        read = _table(chosen.start, chosen.end, "sync", names, on_gpu[is_read].astype(np.int64))
        owned = np.append(is_read | self._copies["known"].to_numpy(), False)[calls["outer"].to_numpy()]
        waits = _as_spans(calls.filter("waits", ~pl.Series(owned))).outer()
        names = [self._names[number] for number in waits.name.tolist()]
        return pl.concat(
            [read, _table(waits.start, waits.end, "sync", names, np.ones(waits.start.size, np.int64))]
        )

    @cached_property
    def _copies(self) -> pl.DataFrame:
        """For each of the functions, its copies between host and GPU: ``known`` says whether it had any."""
        gpu = self._process.on_gpu.filter(pl.col("kind") == "copy", pl.col("link").is_not_null())
        direction = [copy_direction(name) for name in self._names]
        fixed = [pinned(name) for name in self._names]
        code = gpu["name"].cast(pl.UInt32)
        done = gpu.select(
            "link",
            "bytes",
            pl.Series(direction, dtype=pl.String).gather(code).alias("direction"),
            pl.Series(fixed, dtype=pl.Boolean).gather(code).alias("pinned"),
        ).filter(pl.col("direction").is_in(["h2d", "d2h"]))
        calls = self._calls.filter(pl.col("outer") >= 0)
        copied = (
            calls.select("link", "outer")
            .join(done, on="link")
            .group_by("outer")
            .agg(
                pl.col("bytes").sum().alias("bytes"),
                (pl.col("direction") == "h2d").any().alias("to"),
                (pl.col("direction") == "d2h").any().alias("from"),
                pl.col("pinned").all().alias("pinned"),
            )
        )
        waited = calls.group_by("outer").agg(pl.col("waits").any().alias("waited"))
        whole = pl.DataFrame({"outer": np.arange(self._functions.start.size, dtype=np.int64)})
        joined = whole.join(copied, on="outer", how="left").join(waited, on="outer", how="left").sort("outer")
        names = [(operation_of("op", name) or ("",))[0] == "transfer" for name in self._names]
        is_copy = np.array(names, dtype=np.bool_)[self._functions.name]
        return joined.with_columns(
            (pl.col("bytes").is_not_null() & pl.Series(is_copy, dtype=pl.Boolean)).alias("known"),
        ).with_columns(
            pl.col("to", "from", "pinned", "waited").fill_null(False), pl.col("bytes").fill_null(0)
        )

    def _transfers(self) -> pl.DataFrame:
        """Return the copies between host and GPU, with bytes and flags like those of the recorder."""
        copies = self._copies
        spans = self._functions.only(copies["known"].to_numpy())
        flags = (
            pl.col("to").cast(pl.Int64) * TO_GPU
            + pl.col("from").cast(pl.Int64) * FROM_GPU
            + pl.col("pinned").cast(pl.Int64) * PINNED
            + (~pl.col("waited")).cast(pl.Int64) * NON_BLOCKING
        )
        value = copies.filter("known").select((pl.col("bytes").clip(0, 1 << 54) * 256 + flags).alias("value"))
        names = [self._names[number].removeprefix("aten::") for number in spans.name.tolist()]
        return _table(spans.start, spans.end, "transfer", names, value["value"].to_numpy())

    def _backwards(self) -> pl.DataFrame:
        """Return the backward passes: autograd's functions, until the thread itself calls something else."""
        engine = [is_autograd(name) for name in self._names]
        rows = self._process.rows.filter(pl.col("kind") == "op")
        rows = rows.filter(pl.Series(engine, dtype=pl.Boolean).gather(rows["name"].cast(pl.UInt32)))
        owners = [self._process.events.threads.values[number][0] for number in rows["thread"].to_list()]
        mine = self._process.events.threads.values[self._thread or 0][0]
        functions = _as_spans(rows.filter(pl.Series([owner == mine for owner in owners], dtype=pl.Boolean)))
        if not functions.start.size:
            return _table(functions.start, functions.end, "backward", [])
        own = self._functions
        others = own.only(~np.array(engine, dtype=np.bool_)[own.name])
        marks = self._named().filter(~pl.col("operation").is_in(["forward", "backward"]))
        turns = np.sort(np.concatenate([others.start, marks["start"].to_numpy()]))
        between = np.searchsorted(turns, functions.start)
        first = np.flatnonzero(np.diff(between, prepend=-1))
        ends = np.maximum.reduceat(functions.end, first)
        starts = functions.start[first]
        # The next pass may begin before the recorded end of the last function of this one.
        ends = np.minimum(ends, np.append(starts[1:], np.iinfo(np.int64).max))
        return _table(starts, ends, "backward", ["backward"] * starts.size)

    def _forwards(self, found: pl.DataFrame) -> pl.DataFrame:
        """Return the work before each backward pass, in a trace that names no forward."""
        if (found["operation"] == "forward").any():
            return found.clear()
        backward = found.filter(pl.col("operation") == "backward").sort("start")
        if backward.is_empty():
            return self._uses(found)
        starts = backward["start"].to_numpy()[
            outermost(backward["start"].to_numpy(), backward["end"].to_numpy())
        ]
        walls = found.filter(pl.col("operation").is_in(BOUNDARIES)).sort("start", -pl.col("end"))
        wall = Spans(walls["start"].to_numpy(), walls["end"].to_numpy(), np.zeros(walls.height, np.int64))
        functions = self._functions
        free = functions.only(holder(wall.outer().start, wall.outer().end, functions.start) == NO_INTERVAL)
        gap = np.searchsorted(wall.start, free.start)
        step = np.searchsorted(starts, free.start, side="left")
        ahead = step < starts.size
        key = gap[ahead] * (starts.size + 1) + step[ahead]
        free = free.only(ahead)
        first = np.flatnonzero(np.diff(key, prepend=-1))
        if not first.size:
            return _table(free.start, free.end, "forward", [])
        size = np.diff(np.append(first, key.size))
        begin, end = free.start[first], np.maximum.reduceat(free.end, first)
        # Work between an optimizer step and the next batch is no forward.
        fed = np.append(walls["operation"].is_in(["data", "transfer"]).to_numpy(), False)[
            gap[ahead][first] - 1
        ]
        batches = found.filter(pl.col("operation") == "data")["start"].to_numpy()
        another = np.searchsorted(batches, starts[step[ahead][first]]) > np.searchsorted(batches, begin)
        chosen = (size >= MIN_FUNCTIONS) & (fed | ~another) & self._leads(begin, end)
        return _table(begin[chosen], end[chosen], "forward", ["forward"] * int(chosen.sum()))

    def _uses(self, found: pl.DataFrame) -> pl.DataFrame:
        """Return torch's work between other operations, in marked steps that do not train: a model is used there."""
        named = [STEP.match(name) is not None for name in self._names]
        marks = np.concatenate([self._spans(kind, named).start for kind in ("op", "range")])
        if not marks.size:
            return found.clear()
        walls = found.filter(pl.col("operation").is_in((*BOUNDARIES, "sync")))
        turns = np.sort(np.concatenate([walls["start"].to_numpy(), marks]))
        start, end = walls["start"].to_numpy(), walls["end"].to_numpy()
        outer = outermost(start, end)
        free = self._functions.only(holder(start[outer], end[outer], self._functions.start) == NO_INTERVAL)
        first = np.flatnonzero(np.diff(np.searchsorted(turns, free.start, side="right"), prepend=-1))
        if not first.size:
            return found.clear()
        enough = np.diff(np.append(first, free.start.size)) >= MIN_FUNCTIONS
        starts, ends = free.start[first][enough], np.maximum.reduceat(free.end, first)[enough]
        return _table(starts, ends, "forward", ["forward"] * starts.size)

    def _leads(self, begin: Integers, end: Integers) -> Flags:
        """Return in which intervals a function ran that a backward pass refers to; all if there is no such data."""
        graph = self._process.events.graph().filter(pl.col("thread") == self._thread)
        if graph.is_empty():
            return np.ones(begin.size, dtype=np.bool_)
        moments = self._process.times(graph["time"].sort()).to_numpy()
        return np.searchsorted(moments, end) > np.searchsorted(moments, begin)

    def _with_modes(self, found: pl.DataFrame) -> pl.DataFrame:
        """Add to each forward whether it is for training: whether a backward pass follows before the next batch."""
        backward = found.filter(pl.col("operation") == "backward")["start"].to_numpy()
        batch = found.filter(pl.col("operation") == "data")["start"].to_numpy()
        forever = np.iinfo(np.int64).max
        ends = found["end"].to_numpy()
        next_backward = np.append(backward, forever)[np.searchsorted(backward, ends)]
        next_batch = np.append(batch, forever)[np.searchsorted(batch, ends)]
        mode = np.where(next_backward < next_batch, TRAINING | GRAD, 0)
        is_forward = pl.col("operation") == "forward"
        return found.with_columns(pl.when(is_forward).then(pl.Series(mode)).otherwise("value").alias("value"))

    def _with_places(self, found: pl.DataFrame) -> pl.DataFrame:
        """Add the program's function that called each operation, if Python was recorded.

        The line of the call is unknown: the profiler records only where a function begins.
        """
        places = [python_place(name) for name in self._names]
        python = self._spans("python", [place is not None for place in places])
        inside = innermost(python.start, python.end, found["start"].to_numpy())
        at = [places[python.name[number]] if number != NO_INTERVAL else None for number in inside.tolist()]
        table = pl.DataFrame(
            [place or (None, None, None) for place in at],
            schema={"file": pl.String, "line": pl.Int32, "function": pl.String},
            orient="row",
        )
        return found.with_columns(table["file", "function"])


def _as_spans(rows: pl.DataFrame) -> Spans:
    """Return sorted rows as arrays."""
    start = rows["start"].to_numpy()
    return Spans(start, start + rows["duration"].to_numpy(), rows["name"].to_numpy().astype(np.int64))


def _table(
    start: Integers, end: Integers, operation: str, names: list[str], value: Integers | None = None
) -> pl.DataFrame:
    """Return operations as rows."""
    return pl.DataFrame(
        {
            "start": start,
            "end": end,
            "operation": [operation] * start.size,
            "name": names,
            "value": [None] * start.size if value is None else value,
        },
        schema={
            "start": pl.Int64,
            "end": pl.Int64,
            "operation": pl.String,
            "name": pl.String,
            "value": pl.Int64,
        },
    )
