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
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import Any

import msgspec
import polars as pl

from perfwrap.diagnosis import Diagnosis
from perfwrap.private_files import replacing
from perfwrap.reports.trace_tracks import TraceTracks
from perfwrap.shown_text import visible
from perfwrap.timeline.model import Timeline

FORMAT = 1
"""Version of ``otherData``. 1: first."""

MOST_SPANS = 100_000
"""The shortest spans are left out beyond that: so many are written within some seconds and opened at once."""

MOST_SAMPLES = 50_000
"""Of all counters together; of longer ones every second, third and so on is kept."""

OWN_SOURCE = "recorder"
CHUNK = 10_000
Event = dict[str, Any]


@dataclass(frozen=True)
class Written:
    """What stands in a trace, and what was left out to keep it small."""

    spans: int
    left_out_spans: int
    samples: int
    left_out_samples: int
    flows: int


def write(diagnosis: Diagnosis, timeline: Timeline, path: Path, most_spans: int = MOST_SPANS) -> Written:
    """Write the trace in one step, so that nobody sees half of it; OSError where it cannot be written."""
    picture = _Picture(diagnosis, timeline, most_spans)
    with replacing(path) as plain, gzip.GzipFile("", "wb", compresslevel=5, fileobj=plain) as file:
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
        every = -(-timeline.samples.height // MOST_SAMPLES) or 1
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
            yield (b"" if first else b",\n") + b",\n".join(msgspec.json.encode(event) for event in chunk)
            first = False
        names = [msgspec.json.encode(event) for event in self._tracks.named()]
        yield (b"" if first or not names else b",\n") + b",\n".join(names)
        yield b'],"otherData":' + msgspec.json.encode(self._other()) + b"}\n"

    def _events(self) -> Iterator[Event]:
        """Yield all events, by time; of those that begin together the longer first."""
        drawn: list[tuple[int, int, Event]] = []
        for start, duration, event in chain(
            self._span_events(),
            self._step_events(),
            self._finding_events(),
            self._mark_events(),
            self._counters(),
        ):
            drawn.append((start, -duration, event))
        drawn.sort(key=lambda item: item[:2])
        return (event for _, _, event in drawn)

    def _span_events(self) -> Iterator[tuple[int, int, Event]]:
        """Yield the spans and, between those that a link joins, the flows."""
        lanes: dict[tuple[int, str], list[list[int]]] = {}
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
        for row in self._spans.select(columns).iter_rows():
            start, duration, track, name, category, operation, file, line, value, link, source = row
            lane = _lane(lanes.setdefault((track, source), []), start, start + duration)
            words = (
                "" if source == OWN_SOURCE or self._tracks.kind(track) == "stream" else source or "",
                lane,
            )
            pid, tid = self._tracks.thread(track, " ".join(word for word in words if word))
            told = {"operation": operation, "at": _place(file, line), "value": value, "source": source}
            yield start, duration, self._slice(pid, tid, name or operation, category, start, duration, told)
            if link is not None:
                side = works if self._tracks.kind(track) == "stream" else launches
                side.append(((link, source, self._tracks.parent(track)), start, pid, tid))
        yield from self._flow_events({key: place for key, *place in launches}, works)

    def _flow_events(
        self, launches: dict[Any, list[int]], works: list[tuple[Any, int, int, int]]
    ) -> Iterator[tuple[int, int, Event]]:
        """Yield an arrow from each launch to the work that it started, where both are drawn and in that order."""
        for key, start, pid, tid in works:
            begun = launches.get(key)
            if begun is None or begun[0] > start:
                continue
            self._flows += 1
            arrow = {"id": self._flows, "name": "launch", "cat": "launch"}
            yield (
                begun[0],
                0,
                {"ph": "s", "pid": begun[1], "tid": begun[2], "ts": self._us(begun[0]), **arrow},
            )
            yield start, 0, {"ph": "f", "bp": "e", "pid": pid, "tid": tid, "ts": self._us(start), **arrow}

    def _step_events(self) -> Iterator[tuple[int, int, Event]]:
        """Yield each trainer's steps on a lane of their own."""
        for track, table in self._diagnosis.step_tables.items():
            columns = ("index", "start", "duration", "steady", "windowed", "detailed")
            for index, start, duration, steady, windowed, detailed in table.select(columns).iter_rows():
                pid, tid = self._tracks.thread(track, "steps", -2)
                told = {
                    "steady": steady,
                    "watched by torch.profiler": windowed or None,
                    "recorded in detail": detailed,
                }
                yield start, duration, self._slice(pid, tid, f"step {index}", "step", start, duration, told)

    def _finding_events(self) -> Iterator[tuple[int, int, Event]]:
        """Yield what each finding claims, on a lane of their own; the shortest left out where they are very many."""
        sentences = {finding.rule: finding for finding in self._diagnosis.findings}
        for track, table in self._diagnosis.claimed.items():
            kept = table.with_columns((pl.col("end") - pl.col("start")).alias("duration"))
            kept = kept.top_k(MOST_SAMPLES, by="duration").sort("start")
            for start, duration, rule in kept.select("start", "duration", "rule").iter_rows():
                pid, tid = self._tracks.thread(track, "findings", -1)
                finding = sentences.get(rule)
                told = {} if finding is None else {"found": finding.sentence, "fix": finding.advice}
                yield start, duration, self._slice(pid, tid, rule, "finding", start, duration, told)

    def _mark_events(self) -> Iterator[tuple[int, int, Event]]:
        """Yield the marks."""
        columns = ("time", "track", "name", "detail", "file", "line", "value")
        for time, track, name, detail, file, line, value in (
            _moments(self._timeline).select(columns).iter_rows()
        ):
            pid, tid = self._tracks.thread(track)
            told = {"detail": detail, "at": _place(file, line), "value": value}
            event = {"ph": "i", "s": "t", "pid": pid, "tid": tid, "ts": self._us(time), "cat": "mark"}
            yield time, 0, {**event, "name": visible(str(name)), "args": _told(told)}

    def _counters(self) -> Iterator[tuple[int, int, Event]]:
        """Yield the samples."""
        for time, track, value in self._samples.select("time", "track", "value").iter_rows():
            event = {"ph": "C", "pid": self._tracks.process(track), "ts": self._us(time)}
            told = {self._tracks.unit(track): value if value == value else None}
            yield time, 0, {**event, "name": self._tracks.counter_name(track), "args": _told(told)}

    def _slice(
        self, pid: int, tid: int, name: str, category: str, start: int, duration: int, told: Event
    ) -> Event:
        """Return a span."""
        place = {"ph": "X", "pid": pid, "tid": tid, "ts": self._us(start), "dur": duration / 1000}
        return {**place, "name": visible(str(name)), "cat": category, "args": _told(told)}

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


def _longest(spans: pl.DataFrame, most: int) -> pl.DataFrame:
    """Return the longest spans in the order that they had."""
    kept = spans.with_row_index("place").top_k(most, by="duration").sort("place")
    return kept.drop("place")


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
    return None if file is None else f"{visible(PurePath(file).name)}:{line}"


def _told(values: Event) -> Event:
    """Return what is known."""
    return {
        key: visible(value) if isinstance(value, str) else value
        for key, value in values.items()
        if value is not None
    }
