"""The whole timeline as ``trace.json.gz``: opens in ui.perfetto.dev and chrome://tracing.

Format: the Trace Event Format of Chromium (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU),
which Perfetto reads as well; Perfetto's own protobuf is read by Perfetto alone. Phases used: M (names), X (spans),
C (counters), i (marks), s and f (from a launch to its kernel). Times are microseconds since the run's first event;
``otherData`` has the rest. Slices of one thread must nest: what overlaps otherwise gets a lane of its own, and so does
each source.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from pathlib import Path, PurePath
from typing import Any

import msgspec
import polars as pl
from msgspec import Struct

from perfwrap.diagnosis.model import Diagnosis
from perfwrap.private_files import replacing
from perfwrap.reports.trace_tracks import TraceTracks
from perfwrap.shown_text import visible
from perfwrap.timeline.model import Timeline
from perfwrap.timeline.notebook_cells import at_line

FORMAT = 1
"""Version of ``otherData``. 1: first."""

MAX_SPANS = 100_000
"""The shortest spans are left out beyond that: so many are written within some seconds and opened at once."""

MAX_SAMPLES = 50_000
"""Of all counters together; of longer ones every second, third and so on is kept."""

OWN_SOURCE = "recorder"
CHUNK = 10_000
COMPRESSION = 3
"""Of zlib's levels. 5 makes the file an eighth smaller and takes twice as long."""
Event = dict[str, Any]
Drawn = tuple[int, int, bytes]
"""When an event begins, how long it lasts with the sign changed, and its text: events are sorted by the first two."""
_encode = msgspec.json.Encoder().encode


class Written(Struct, frozen=True):
    """What stands in a trace, and what was left out to keep it small."""

    spans: int
    left_out_spans: int
    samples: int
    left_out_samples: int
    flows: int


def write(diagnosis: Diagnosis, timeline: Timeline, path: Path, most_spans: int = MAX_SPANS) -> Written:
    """Write the trace in one step, so that nobody sees half of it; OSError where it cannot be written."""
    picture = _Picture(diagnosis, timeline, most_spans)
    with replacing(path) as plain, gzip.GzipFile("", "wb", compresslevel=COMPRESSION, fileobj=plain) as file:
        for piece in picture.text():
            file.write(piece)
    return picture.written


class _Picture:
    """One trace while it is put together."""

    def __init__(self, diagnosis: Diagnosis, timeline: Timeline, most_spans: int) -> None:
        self._diagnosis, self._timeline = diagnosis, timeline
        self._tracks = TraceTracks(timeline)
        spans = timeline.spans
        self._spans = spans if spans.height <= most_spans else _longest(spans, most_spans)
        every = -(-timeline.samples.height // MAX_SAMPLES) or 1
        self._samples = timeline.samples.filter(pl.int_range(pl.len()).over("track") % every == 0)
        self._base = _base(timeline)
        self._flows = 0

    @property
    def written(self) -> Written:
        """What it holds."""
        timeline = self._timeline
        return Written(
            self._spans.height,
            timeline.spans.height - self._spans.height,
            self._samples.height,
            timeline.samples.height - self._samples.height,
            self._flows,
        )

    def text(self) -> Iterator[bytes]:
        """Yield the file piece by piece: events by time, then the names of all that they stand on."""
        events = self._events()
        yield b'{"displayTimeUnit":"ns","traceEvents":['
        first = True
        for chunk in iter(lambda: list(islice(events, CHUNK)), []):
            yield (b"" if first else b",\n") + b",\n".join(chunk)
            first = False
        names = [_encode(event) for event in self._tracks.named()]
        yield (b"" if first or not names else b",\n") + b",\n".join(names)
        yield b'],"otherData":' + _encode(self._other()) + b"}\n"

    def _events(self) -> Iterator[bytes]:
        """Yield all events, by time; of those that begin together the longer first."""
        drawn = [
            *self._span_events(),
            *self._step_events(),
            *self._finding_events(),
            *self._mark_events(),
            *self._counters(),
        ]
        drawn.sort(key=itemgetter(0, 1))
        return (event for _, _, event in drawn)

    def _span_events(self) -> Iterator[Drawn]:
        """Yield the spans and, between those that a link joins, the flows.

        There may be 100,000: what many of them share is encoded once.
        """
        lanes: dict[tuple[int, str], list[list[int]]] = {}
        places: dict[tuple[int, str, str], tuple[int, int, bytes]] = {}
        labels: dict[tuple[Any, ...], bytes] = {}
        streams = {track for track in self._spans["track"].unique() if self._tracks.kind(track) == "stream"}
        launches: list[tuple[Any, int, int, int]] = []
        works: list[tuple[Any, int, int, int]] = []
        columns = (
            "start",
            "duration",
            "track",
            "name",
            "category",
            "operation",
            "file",
            "line",
            "value",
            "link",
            "source",
        )
        starts = self._moments_us(self._spans["start"])
        lengths = _lengths_us(self._spans["duration"])
        for row, ts, dur in zip(self._spans.select(columns).iter_rows(), starts, lengths, strict=False):
            start, duration, track, name, category, operation, file, line, value, link, source = row
            lane = _lane(lanes.setdefault((track, source), []), start, start + duration)
            place = places.get((track, source, lane))
            if place is None:
                words = ("" if source == OWN_SOURCE or track in streams else source or "", lane)
                pid, tid = self._tracks.thread(track, " ".join(word for word in words if word))
                place = pid, tid, _encode({"ph": "X", "pid": pid, "tid": tid})[:-1]
                places[track, source, lane] = place
            label = name, category, operation, file, line, source, value
            if label not in labels:
                details = {"operation": operation, "at": _place(file, line), "value": value, "source": source}
                names = {
                    "name": visible(str(name or operation)),
                    "cat": category,
                    "args": _without_unknown(details),
                }
                labels[label] = _encode(names)[1:]
            yield start, -duration, b'%b,"ts":%b,"dur":%b,%b' % (place[2], ts, dur, labels[label])
            if link is not None:
                side = works if track in streams else launches
                side.append(((link, source, self._tracks.parent(track)), start, *place[:2]))
        yield from self._flow_events({key: place for key, *place in launches}, works)

    def _flow_events(
        self, launches: dict[Any, list[int]], works: list[tuple[Any, int, int, int]]
    ) -> Iterator[Drawn]:
        """Yield an arrow from each launch to the work that it started, where both are drawn and in that order."""
        for key, start, pid, tid in works:
            begun = launches.get(key)
            if begun is None or begun[0] > start:
                continue
            self._flows += 1
            arrow = {"id": self._flows, "name": "launch", "cat": "launch"}
            begin = {"ph": "s", "pid": begun[1], "tid": begun[2], "ts": self._us(begun[0]), **arrow}
            yield begun[0], 0, _encode(begin)
            end = {"ph": "f", "bp": "e", "pid": pid, "tid": tid, "ts": self._us(start), **arrow}
            yield start, 0, _encode(end)

    def _step_events(self) -> Iterator[Drawn]:
        """Yield each trainer's steps on a lane of their own."""
        for track, table in self._diagnosis.step_tables.items():
            if table.is_empty():
                continue
            pid, tid = self._tracks.thread(track, "steps", -2)
            place = _encode({"ph": "X", "pid": pid, "tid": tid})[:-1]
            texts = zip(self._moments_us(table["start"]), _lengths_us(table["duration"]), strict=True)
            columns = ("index", "start", "duration", "steady", "windowed", "detailed")
            labels: dict[tuple[Any, ...], bytes] = {}
            for row, (ts, dur) in zip(table.select(columns).iter_rows(), texts, strict=True):
                index, start, duration, *kind = row
                label = labels.get(tuple(kind)) or labels.setdefault(tuple(kind), _step_label(*kind))
                name = b'"name":"step %d"' % index
                yield start, -duration, b'%b,"ts":%b,"dur":%b,%b,%b' % (place, ts, dur, name, label)

    def _finding_events(self) -> Iterator[Drawn]:
        """Yield what each finding claims, on a lane of their own; except the shortest if there are very many."""
        sentences = {finding.rule: finding for finding in self._diagnosis.findings}
        labels: dict[str, bytes] = {}
        for track, table in self._diagnosis.claimed.items():
            kept = table.with_columns((pl.col("end") - pl.col("start")).alias("duration"))
            kept = kept.top_k(MAX_SAMPLES, by="duration").sort("start")
            for start, duration, rule in kept.select("start", "duration", "rule").iter_rows():
                pid, tid = self._tracks.thread(track, "findings", -1)
                if rule not in labels:
                    finding = sentences.get(rule)
                    details = {} if finding is None else {"found": finding.sentence, "fix": finding.advice}
                    names = {"name": visible(str(rule)), "cat": "finding", "args": _without_unknown(details)}
                    labels[rule] = _encode(names)[1:]
                place = {"ph": "X", "pid": pid, "tid": tid, "ts": self._us(start), "dur": duration / 1000}
                yield start, -duration, b"%b,%b" % (_encode(place)[:-1], labels[rule])

    def _mark_events(self) -> Iterator[Drawn]:
        """Yield the marks."""
        columns = ("time", "track", "name", "detail", "file", "line", "value")
        for time, track, name, detail, file, line, value in (
            _moments(self._timeline).select(columns).iter_rows()
        ):
            pid, tid = self._tracks.thread(track)
            details = {"detail": detail, "at": _place(file, line), "value": value}
            event = {"ph": "i", "s": "t", "pid": pid, "tid": tid, "ts": self._us(time), "cat": "mark"}
            yield time, 0, _encode({**event, "name": visible(str(name)), "args": _without_unknown(details)})

    def _counters(self) -> Iterator[Drawn]:
        """Yield the samples."""
        known: dict[int, tuple[bytes, bytes, bytes]] = {}
        times, tracks, values = (self._samples[name].to_list() for name in ("time", "track", "value"))
        texts = zip(self._moments_us(self._samples["time"]), _numbers(values), strict=True)
        for time, track, value, (ts, number) in zip(times, tracks, values, texts, strict=False):
            if track not in known:
                place = _encode({"ph": "C", "pid": self._tracks.process(track)})[:-1]
                name = _encode({"name": self._tracks.counter_name(track)})[1:-1]
                known[track] = place, name, _encode(self._tracks.unit(track))
            place, name, unit = known[track]
            counted = b"" if value is None or value != value else b"%b:%b" % (unit, number)
            yield time, 0, b'%b,"ts":%b,%b,"args":{%b}}' % (place, ts, name, counted)

    def _moments_us(self, moments: pl.Series) -> list[bytes]:
        """Return the texts of microseconds since the first event; a single empty one without any."""
        return _numbers([(moment - self._base) / 1000 for moment in moments.to_list()])

    def _us(self, moment: int) -> float:
        """Return microseconds since the first event."""
        return (moment - self._base) / 1000

    def _other(self) -> Event:
        """Return what the trace says of itself."""
        run, written = self._diagnosis.run, self.written
        return {
            "perfwrap_format": FORMAT,
            "command": [visible(str(word)) for word in run.get("command") or ()],
            "verdict": visible(self._diagnosis.verdict.sentence),
            "base_monotonic_ns": self._base,
            "spans_left_out": written.left_out_spans,
            "samples_left_out": written.left_out_samples,
        }


def _numbers(values: list[float]) -> list[bytes]:
    """Return the texts of numbers, encoded all at once; a single empty one where there are none."""
    return _encode(values)[1:-1].split(b",")


def _lengths_us(lengths: pl.Series) -> list[bytes]:
    """Return the texts of durations in microseconds; a single empty one without any."""
    return _numbers([length / 1000 for length in lengths.to_list()])


def _step_label(steady: bool | None, windowed: bool | None, detailed: bool | None) -> bytes:
    """Return the end of a step's event: its category and what is known of it."""
    details = {
        "steady": steady,
        "watched by torch.profiler": windowed or None,
        "recorded in detail": detailed,
    }
    return _encode({"cat": "step", "args": _without_unknown(details)})[1:]


def _longest(spans: pl.DataFrame, most: int) -> pl.DataFrame:
    """Return the longest spans in the order that they had."""
    kept = spans.select("duration").with_row_index("place").top_k(most, by="duration")["place"]
    found: pl.DataFrame = spans[kept.sort()]
    return found


def _lane(lanes: list[list[int]], start: int, end: int) -> str:
    """Return the lane on which a span nests, and keep it there; spans come by start, the longer first."""
    for number, open_ends in enumerate(lanes):
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        if not open_ends or end <= open_ends[-1]:
            open_ends.append(end)
            return f"({number + 1})" if number else ""
    lanes.append([end])
    return f"({len(lanes)})" if len(lanes) > 1 else ""


def _moments(timeline: Timeline) -> pl.DataFrame:
    """Return the marks of something that happened; what was found in a memory snapshot has no time of its own."""
    return timeline.marks.filter(pl.col("name") != "live_block")


def _base(timeline: Timeline) -> int:
    """Return the first moment of the timeline."""
    tables = ((timeline.spans, "start"), (timeline.samples, "time"), (_moments(timeline), "time"))
    return min((int(table[column].min()) for table, column in tables if table.height), default=0)  # type: ignore[arg-type]


def _place(file: str | None, line: int | None) -> str | None:
    """Return e.g. ``train.py:31``."""
    return None if file is None else at_line(visible(PurePath(file).name), line or 0)


def _without_unknown(values: Event) -> Event:
    """Return the values without those that are None, safe to show."""
    return {
        key: visible(value) if isinstance(value, str) else value
        for key, value in values.items()
        if value is not None
    }
