"""Collects the events of a trace in columns: names and threads as numbers, times in whole nanoseconds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import compress
from typing import Any

import msgspec
import numpy as np
import polars as pl

from perfwrap.sources.kineto.kineto_shapes import MAX_SHAPES, PRODUCTS, has_shapes, shapes_of
from perfwrap.sources.kineto.trace_file import Arguments, Event
from perfwrap.sources.kineto.trace_words import is_own_function, kind_of, plain_text
from perfwrap.sources.time_part import MAX_EVENTS, Part, middle

LATEST = 9 * 10**15
"""Microseconds; as nanoseconds they fit into 64 bits, and as a date they are in the year 2255."""

SCHEMA: dict[str, Any] = {
    "start": pl.Int64,
    "duration": pl.Int64,
    "kind": pl.Int32,
    "name": pl.Int32,
    "thread": pl.Int32,
    "link": pl.Int64,
    "device": pl.Int64,
    "stream": pl.Int64,
    "bytes": pl.Int64,
}
MATRIX_SCHEMA: dict[str, Any] = {"time": pl.Int64, "thread": pl.Int32, "text": pl.Int32}
MOMENT_SCHEMA: dict[str, Any] = {"time": pl.Int64, "thread": pl.Int32}
INSTANT_SCHEMA: dict[str, Any] = {"time": pl.Int64, "series": pl.Int32, "value": pl.Float64}


STREAM_WAIT = "Stream Wait Event"
MAX_WAITS = 1_000_000
HOST_MEMORY, GPU_MEMORY = 0, 1
"""``c10::DeviceType`` in the profiler's memory events; AMD GPUs have CUDA's number."""
GPU_COUNTER = re.compile(r"GPU (\d{1,4}) (.+)")
"""Kineto's names of GPU counters: ``GPU 0 Utilization``."""
MAX_SERIES = 1_000
LONGEST_TITLE = 80
LARGEST_VALUE = 2.0**100

NOTHING = Arguments()


class Numbering:
    """Gives each different value a number, in order of appearance; ``values`` has the value of each number."""

    def __init__(self, meaning: Callable[[Any], Any]) -> None:
        """Keep ``meaning``: values with the same meaning get the same number."""
        self.values: list[Any] = []
        self._meaning = meaning
        self._numbers: dict[Any, int] = {}
        self._meant: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        """Return the number of a value."""
        meant = self._meaning(value)
        number = self._meant.setdefault(meant, len(self.values))
        if number == len(self.values):
            self.values.append(meant)
        return number

    def of(self, values: list[Any]) -> list[int]:
        """Return the numbers of many values, quickly if they are known."""
        numbers = self._numbers
        try:
            for value in set(values).difference(numbers):
                numbers[value] = self(value)
            return [numbers[value] for value in values]
        except TypeError:
            # Lists and similar values, which no regular writer has there.
            return [self(value) for value in values]


class TraceEvents:
    """All events of one trace that the timeline needs, or those of a part of it.

    After more than MAX_EVENTS of them, all that is kept are their times: ``full`` is True, and ``middle`` returns the
    part to read instead.

    ``kinds``, ``names``, ``threads`` (pid and tid) and ``series`` (what a counter is about, a GPU or a process, its
    number, and the counter's name) give the meaning of the numbers in the columns.
    """

    def __init__(self, part: Part | None = None) -> None:
        """Keep the part that is read; None for all."""
        self.kinds, self.names = Numbering(kind_of), Numbering(plain_text)
        self.threads, self.series = Numbering(_thread), Numbering(tuple)
        self.process_names: dict[Any, str] = {}
        self.thread_names: dict[tuple[Any, Any], str] = {}
        self.untimed = 0
        """Number of events that were skipped because they have no time."""
        self.library_functions = 0
        """Python functions of libraries, which are skipped."""
        self.shapes = Numbering(str)
        """The texts of matrix operations whose sizes were recorded."""
        self.stream_waits: list[tuple[int | None, ...]] = []
        """Of each wait of a stream its correlation, device and stream, and the call and stream that it waits for."""
        self.full = False
        self._spans: list[pl.DataFrame] = []
        self._instants: list[pl.DataFrame] = []
        self._own: dict[str, bool] = {}
        self._series: set[tuple[str, Any, str]] = set()
        self.kept = 0
        self._part = part
        self._starts: list[pl.Series] = []
        self._graph: list[pl.DataFrame] = []
        self._matrices: list[pl.DataFrame] = []
        self._sized: dict[tuple[Any, ...], str] = {}

    def add(self, events: Iterable[Event]) -> None:
        """Add the events of one piece."""
        lasting: list[Event] = []
        flows: list[Event] = []
        instants: list[tuple[int, float]] = []
        moments: list[msgspec.Raw] = []
        for event in events:
            phase = event.ph
            if phase == "X":
                if event.cat != "python_function" or self._wanted(event):
                    lasting.append(event)
            elif phase == "s":
                if event.cat == "fwdbwd":
                    flows.append(event)
            elif phase == "M":
                self._name(event)
            elif phase in ("i", "C"):
                found = self._values(event) if phase == "i" else self._counted(event)
                instants += found
                moments += [event.ts] * len(found)
        lasting, starts = self._timed(lasting)
        times = nanoseconds(moments)
        if self.full:
            self._starts += [starts, times.drop_nulls()]
            return
        if self._part is not None:
            lasting, starts = self._within(lasting, starts)
        self._keep_spans(lasting, starts)
        self._keep_shapes(lasting)
        self._keep_waits(lasting)
        self._keep_instants(instants, times)
        self._keep_flows(flows)
        if self.kept > MAX_EVENTS and self._part is None:
            self.full = True
            self._starts = [piece["start"] for piece in self._spans] + [
                piece["time"] for piece in self._instants
            ]
            self._spans, self._instants, self._graph, self._matrices = [], [], [], []

    def middle(self) -> Part:
        """Return the part of the trace that is read if ``full``."""
        starts = pl.concat(self._starts).to_numpy()
        return middle(starts, np.ones(starts.size), MAX_EVENTS)

    def spans(self) -> pl.DataFrame:
        """Return the events with a duration, sorted by start, the longer first; they are no longer kept."""
        found = pl.concat(self._spans) if self._spans else pl.DataFrame(schema=SCHEMA)
        self._spans = []
        order = found.select(
            pl.arg_sort_by("start", -pl.col("duration"), maintain_order=True).alias("order")
        )["order"]
        # Column by column, so that there are never two copies of a large table.
        return pl.DataFrame([found.drop_in_place(name).gather(order) for name in found.columns])

    def matrices(self) -> pl.DataFrame:
        """Return time, thread and number of the text in ``shapes`` of matrix operations whose sizes were recorded."""
        return pl.concat(self._matrices) if self._matrices else pl.DataFrame(schema=MATRIX_SCHEMA)

    def graph(self) -> pl.DataFrame:
        """Return time and thread of functions that a backward pass refers to."""
        return pl.concat(self._graph) if self._graph else pl.DataFrame(schema=MOMENT_SCHEMA)

    def instants(self) -> pl.DataFrame:
        """Return the sampled values."""
        return pl.concat(self._instants) if self._instants else pl.DataFrame(schema=INSTANT_SCHEMA)

    def _wanted(self, event: Event) -> bool:
        """Return whether an event is kept; Python functions of libraries are too many and not useful."""
        name = str(event.name)
        own = self._own.get(name)
        if own is None:
            own = self._own[name] = is_own_function(name)
        self.library_functions += not own
        return own

    def _timed(self, events: list[Event]) -> tuple[list[Event], pl.Series]:
        """Return the events that have a time, and their times in nanoseconds."""
        starts = nanoseconds([event.ts for event in events])
        if not starts.has_nulls():
            return events, starts
        known = starts.is_not_null()
        self.untimed += starts.null_count()
        return list(compress(events, known.to_list())), starts.filter(known)

    def _within(self, events: list[Event], starts: pl.Series) -> tuple[list[Event], pl.Series]:
        """Return the events of the part that is read, and their times."""
        inside = self._is_read(starts)
        events = list(compress(events, inside.to_list()))
        left = MAX_EVENTS - self.kept
        return events[:left], starts.filter(inside).head(left)

    def _is_read(self, times: pl.Series) -> pl.Series:
        """Return which times are in the part that is read."""
        if self._part is None:
            return times.is_not_null()
        return (times.is_not_null() & (times >= self._part.start) & (times < self._part.end)).fill_null(False)

    def _keep_spans(self, events: list[Event], starts: pl.Series) -> None:
        """Keep the events of one piece that begin at some times."""
        if not events:
            return
        about = [event.args or NOTHING for event in events]
        columns = {
            "start": starts,
            "duration": nanoseconds([event.dur for event in events]).fill_null(0).clip(0),
            "kind": self.kinds.of([event.cat for event in events]),
            "name": self.names.of([event.name for event in events]),
            "thread": self.threads.of([(event.pid, event.tid) for event in events]),
            "link": _integers([args.correlation for args in about]),
            "device": _integers([args.device for args in about]),
            "stream": _integers([args.stream for args in about]),
            "bytes": _integers([args.size if args.bytes is None else args.bytes for args in about]),
        }
        self._spans.append(pl.DataFrame(columns, schema=SCHEMA))
        self.kept += len(events)

    def _keep_shapes(self, events: list[Event]) -> None:
        """Keep the recorded sizes of matrix operations."""
        named = [event for event in events if type(event.name) is str and event.name in PRODUCTS]
        sized = [event for event in named if has_shapes(event)]
        if not sized or sum(piece.height for piece in self._matrices) >= MAX_SHAPES:
            return
        texts = [self._shape(event) for event in sized]
        rows = {
            "time": nanoseconds([event.ts for event in sized]),
            "thread": self.threads.of([(event.pid, event.tid) for event in sized]),
            "text": self.shapes.of(texts),
        }
        is_known = pl.Series([bool(text) for text in texts])
        self._matrices.append(pl.DataFrame(rows, schema=MATRIX_SCHEMA).filter(is_known))

    def _shape(self, event: Event) -> str:
        """Return the text of a matrix operation; the same ones are in every step."""
        about = event.args or NOTHING
        key = event.name, *map(bytes, (about.dims, about.old_dims, about.types))
        if key not in self._sized:
            if len(self._sized) >= MAX_SHAPES:
                self._sized.clear()
            self._sized[key] = shapes_of(event)
        return self._sized[key]

    def _keep_flows(self, flows: list[Event]) -> None:
        """Keep where the functions are that a backward pass refers to."""
        if flows:
            times = nanoseconds([flow.ts for flow in flows])
            threads = self.threads.of([(flow.pid, flow.tid) for flow in flows])
            rows = pl.DataFrame({"time": times, "thread": threads}, schema=MOMENT_SCHEMA)
            self._graph.append(rows.filter(self._is_read(times)))

    def _keep_waits(self, events: list[Event]) -> None:
        """Keep which streams had to wait for which other streams."""
        waits = [event.args for event in events if event.name == STREAM_WAIT and event.args is not None]
        for about in waits[: MAX_WAITS - len(self.stream_waits)]:
            known = (about.correlation, about.device, about.stream, about.awaited_call, about.awaited_stream)
            self.stream_waits.append(tuple(map(_integer, known)))

    def _keep_instants(self, values: list[tuple[int, float]], times: pl.Series) -> None:
        """Keep the values of one piece."""
        if values:
            rows = pl.DataFrame(values, schema={"series": pl.Int32, "value": pl.Float64}, orient="row")
            rows = rows.select(times.alias("time"), "series", "value").filter(self._is_read(times))
            self._instants.append(rows)
            self.kept += rows.height

    def _name(self, event: Event) -> None:
        """Keep the name of a process or thread."""
        if event.args is not None and event.args.name is not None:
            if event.name == "process_name":
                self.process_names[_hashable(event.pid)] = plain_text(event.args.name)
            elif event.name == "thread_name":
                self.thread_names[_thread((event.pid, event.tid))] = plain_text(event.args.name)

    def _values(self, event: Event) -> list[tuple[int, float]]:
        """Return the values of an event: torch's memory; none for other events."""
        about = event.args
        if event.name != "[memory]" or about is None:
            return []
        if about.memory_kind == HOST_MEMORY:
            known = {("process", _hashable(event.pid), "cpu_allocated_bytes"): about.allocated}
        elif about.memory_kind == GPU_MEMORY:
            device = _integer(about.memory_device) or 0
            known = {
                ("gpu", device, "allocated_bytes"): about.allocated,
                ("gpu", device, "reserved_bytes"): about.reserved,
            }
        else:
            return []
        return self._numbered(known)

    def _counted(self, event: Event) -> list[tuple[int, float]]:
        """Return the values of a counter, each with its own name; those of "GPU 0 ..." belong to that GPU."""
        if not isinstance(event.values, dict):
            return []
        about = str(event.name)
        found = GPU_COUNTER.match(about)
        owner = ("gpu", int(found[1])) if found else ("process", _hashable(event.pid))
        title = found[2] if found else about
        return self._numbered(
            {
                (
                    *owner,
                    metric_name(title if key == title or len(event.values) == 1 else f"{title} {key}"),
                ): value
                for key, value in event.values.items()
            }
        )

    def _numbered(self, known: Mapping[tuple[str, Any, str], Any]) -> list[tuple[int, float]]:
        """Return the finite values with the numbers of their series, up to a maximum number of series."""
        found = []
        for series, value in known.items():
            if type(value) not in (int, float) or not abs(value) < LARGEST_VALUE:
                continue
            if len(self.series.values) < MAX_SERIES or series in self._series:
                self._series.add(series)
                found.append((self.series(series), float(value)))
        return found


def metric_name(title: str) -> str:
    """Return the normalized name of a series: ``est_sm_efficiency`` for "Est. SM Efficiency"."""
    words = re.findall(r"[a-z0-9]+", plain_text(title)[:LONGEST_TITLE].lower())
    return "_".join(words) or "counter"


def nanoseconds(texts: list[msgspec.Raw]) -> pl.Series:
    """Convert microseconds, as texts, to whole nanoseconds; null if a text is not a number.

    Digit by digit: the resolution of a float for microseconds since 1970 is only 0.25 us.
    """
    if not texts:
        return pl.Series("ns", [], dtype=pl.Int64)
    joined = b"\n".join(texts).decode("ascii", errors="replace").replace('"', "").replace(" ", "")
    text = pl.Series("ns", [joined], dtype=pl.String).str.split("\n").explode()
    plain = _plain_nanoseconds(text)
    if plain is not None:
        return plain
    parts = pl.DataFrame({"text": text}).select(
        pl.col("text").cast(pl.Float64, strict=False).alias("number"),
        pl.col("text").str.extract(r"^(\d{1,16})(?:\.\d*)?$").cast(pl.Int64).alias("whole"),
        pl.col("text")
        .str.extract(r"\.(\d+)$")
        .fill_null("")
        .str.pad_end(4, "0")
        .str.slice(0, 4)
        .alias("part"),
    )
    whole = pl.when(pl.col("whole") < LATEST).then("whole")
    exact = whole * 1000 + (pl.col("part").cast(pl.Int64, strict=False) + 5) // 10
    valid = pl.col("number").is_finite() & (pl.col("number").abs() < LATEST)
    finite = pl.when(valid).then("number")
    rest = ((finite - finite.floor()) * 1000).round().cast(pl.Int64)
    rounded = finite.floor().cast(pl.Int64) * 1000 + rest
    return parts.select(pl.coalesce(exact, rounded).alias("ns"))["ns"]


def _plain_nanoseconds(text: pl.Series) -> pl.Series | None:
    """Return the result of nanoseconds() in half the time; None unless all texts are as writers have them:
    digits, and at most three after a point."""
    both = text.str.splitn(".", 2).struct.unnest()
    part = both["field_1"].fill_null("")
    whole = both["field_0"].cast(pl.Int64, strict=False)
    behind = part.str.pad_end(3, "0").cast(pl.Int64, strict=False)
    if whole.has_nulls() or behind.has_nulls() or int(part.str.len_bytes().max() or 0) > 3:  # type: ignore[arg-type]
        return None
    ends = [*whole.bottom_k(1), *behind.bottom_k(1)]
    if min(ends, default=0) < 0 or max(whole.top_k(1), default=0) >= LATEST:
        return None
    found: pl.Series = (whole * 1000 + behind).alias("ns")
    return found


def _thread(place: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return pid and tid; old traces write the tid as a text, or as the name of a stream."""
    return _hashable(place[0]), _hashable(place[1])


def _hashable(value: Any) -> Any:
    """Return the number in a text if it is one, else the value, or its text."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        return int(value)
    return value if isinstance(value, (int, str, float, type(None))) else str(value)


def _integers(values: list[Any]) -> pl.Series:
    """Return integers, null for other values."""
    try:
        return pl.Series(values, dtype=pl.Int64)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        return pl.Series([_integer(value) for value in values], dtype=pl.Int64)


def _integer(value: Any) -> int | None:
    """Return an integer that fits into 64 bits, None for anything else."""
    if isinstance(value, str):
        try:
            value = int(value, 0)
        except ValueError:
            return None
    if isinstance(value, float):
        value = int(value) if value.is_integer() else None
    return value if isinstance(value, int) and -(2**63) <= value < 2**63 else None
