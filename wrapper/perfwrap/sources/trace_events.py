"""Gathers the events of a trace in columns: names and threads as numbers, times in whole nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import polars as pl

from perfwrap.sources.trace_file import Event
from perfwrap.sources.trace_words import is_own_function, kind_of

MOST_EVENTS = 40_000_000
"""Events that are kept; each takes some 60 bytes."""

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
INSTANT_SCHEMA: dict[str, Any] = {"time": pl.Int64, "series": pl.Int32, "value": pl.Float64}


class Numbering:
    """Gives each different value a number, in the order in which they come."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        """Return the number of a value."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number


class TraceEvents:
    """All events of one trace that the timeline needs.

    ``kinds``, ``names``, ``threads`` (pid and tid) and ``series`` (owner and name of a counter) say what the numbers
    in the columns stand for.
    """

    def __init__(self) -> None:
        self.kinds, self.names, self.threads, self.series = (Numbering() for _ in range(4))
        self.process_names: dict[Any, str] = {}
        self.thread_names: dict[tuple[Any, Any], str] = {}
        self.graph: set[tuple[int, int]] = set()
        """Thread and time of functions that a backward pass came back to."""
        self.untimed = 0
        """Events that were left out because they have no time."""
        self.library_functions = 0
        """Python functions of libraries, which are left out."""
        self.full = False
        self._spans: list[pl.DataFrame] = []
        self._instants: list[pl.DataFrame] = []
        self._categories: dict[Any, int] = {}
        self._own: dict[str, bool] = {}
        self.kept = 0

    def add(self, events: Iterable[Event]) -> None:
        """Add the events of one piece."""
        spans: list[tuple[Any, ...]] = []
        instants: list[tuple[int, float]] = []
        times: list[msgspec.Raw] = []
        durations: list[msgspec.Raw] = []
        moments: list[msgspec.Raw] = []
        flows: list[Event] = []
        for event in events:
            phase = event.ph
            if phase == "X":
                if self._wanted(event):
                    spans.append(self._span(event))
                    times.append(event.ts)
                    durations.append(event.dur)
            elif phase == "s":
                if event.cat == "fwdbwd":
                    flows.append(event)
            elif phase == "M":
                self._name(event)
            elif phase in ("C", "i"):
                found = self._values(event)
                instants += found
                moments += [event.ts] * len(found)
        self._keep_spans(spans, times, durations)
        self._keep_instants(instants, moments)
        starts = nanoseconds([flow.ts for flow in flows]).to_list()
        self.graph.update((self.threads(_thread(flow)), at) for flow, at in zip(flows, starts, strict=True))

    def spans(self) -> pl.DataFrame:
        """Return the events that lasted, sorted by start, the longer first; those kept are used up."""
        found = pl.concat(self._spans) if self._spans else pl.DataFrame(schema=SCHEMA)
        self._spans = []
        return found.sort("start", -pl.col("duration"), maintain_order=True)

    def instants(self) -> pl.DataFrame:
        """Return the values at moments."""
        return pl.concat(self._instants) if self._instants else pl.DataFrame(schema=INSTANT_SCHEMA)

    def _wanted(self, event: Event) -> bool:
        """Say whether an event is kept; the Python functions of libraries are too many and tell nobody anything."""
        if event.cat != "python_function":
            return True
        name = str(event.name)
        own = self._own.get(name)
        if own is None:
            own = self._own[name] = is_own_function(name)
        self.library_functions += not own
        return own

    def _span(self, event: Event) -> tuple[Any, ...]:
        """Return the columns of one event, without its times."""
        kind = self._categories.get(event.cat)
        if kind is None:
            kind = self._categories[event.cat] = self.kinds(kind_of(event.cat))
        about = event.args
        name, thread = self.names(str(event.name)), self.threads(_thread(event))
        if about is None:
            return kind, name, thread, None, None, None, None
        return (
            kind,
            name,
            thread,
            _integer(about.correlation),
            _integer(about.device),
            _integer(about.stream),
            _integer(about.size if about.bytes is None else about.bytes),
        )

    def _keep_spans(
        self, rows: list[tuple[Any, ...]], times: list[msgspec.Raw], durations: list[msgspec.Raw]
    ) -> None:
        """Keep the events of one piece that have a time."""
        if not rows or self.full:
            return
        schema = {name: kind for name, kind in SCHEMA.items() if name not in ("start", "duration")}
        frame = pl.DataFrame(rows, schema=schema, orient="row").with_columns(
            nanoseconds(times).alias("start"), nanoseconds(durations).fill_null(0).clip(0).alias("duration")
        )
        timed = frame.select(SCHEMA.keys()).filter(pl.col("start").is_not_null())
        self.untimed += frame.height - timed.height
        self._spans.append(timed)
        self.kept += timed.height
        self.full = self.kept >= MOST_EVENTS

    def _keep_instants(self, values: list[tuple[int, float]], moments: list[msgspec.Raw]) -> None:
        """Keep the values of one piece."""
        if values and not self.full:
            frame = pl.DataFrame(
                values, schema={"series": pl.Int32, "value": pl.Float64}, orient="row"
            ).with_columns(nanoseconds(moments).alias("time"))
            self._instants.append(frame.select(INSTANT_SCHEMA.keys()).filter(pl.col("time").is_not_null()))

    def _name(self, event: Event) -> None:
        """Keep the name of a process or thread."""
        if event.args is not None and event.args.name is not None:
            if event.name == "process_name":
                self.process_names[event.pid] = str(event.args.name)
            elif event.name == "thread_name":
                self.thread_names[_thread(event)] = str(event.args.name)

    def _values(self, event: Event) -> list[tuple[int, float]]:
        """Return the values that an event tells: of torch's memory, else none."""
        about = event.args
        if event.name != "[memory]" or about is None or about.memory_kind != 1:
            return []
        device = _integer(about.memory_device)
        known = (("allocated_bytes", about.allocated), ("reserved_bytes", about.reserved))
        return [
            (self.series((event.pid, device, metric)), float(value))
            for metric, value in known
            if isinstance(value, (int, float))
        ]


def nanoseconds(texts: list[msgspec.Raw]) -> pl.Series:
    """Return microseconds, as they are written, as whole nanoseconds; null for what is no number.

    Digit by digit: a float holds microseconds since 1970 only to a quarter of one.
    """
    if not texts:
        return pl.Series("ns", [], dtype=pl.Int64)
    joined = b"\n".join(texts).decode("ascii", errors="replace").replace('"', "").replace(" ", "")
    text = pl.Series("ns", [joined], dtype=pl.String).str.split("\n").explode()
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
    bearable = pl.col("number").is_finite() & (pl.col("number").abs() < LATEST)
    finite = pl.when(bearable).then("number")
    rest = ((finite - finite.floor()) * 1000).round().cast(pl.Int64)
    rounded = finite.floor().cast(pl.Int64) * 1000 + rest
    return parts.select(pl.coalesce(exact, rounded).alias("ns"))["ns"]


def _thread(event: Event) -> tuple[Any, Any]:
    """Return pid and tid of an event; old traces write the tid as a text, or as the name of a stream."""
    return _hashable(event.pid), _hashable(event.tid)


def _hashable(value: Any) -> Any:
    """Return a number where one stands in a text, else the value, or its text."""
    if isinstance(value, str) and value.isdigit() and len(value) < 19:
        return int(value)
    return value if isinstance(value, (int, str, float, type(None))) else str(value)


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
