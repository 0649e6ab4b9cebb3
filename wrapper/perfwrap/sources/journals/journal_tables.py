"""Adds the content of one journal to the tables of a timeline."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import polars as pl

from perfwrap.journal_format import DESCRIBE, FIELD_SEPARATOR, INSTANTS, SPANS, STREAM_PREFIX, SUM
from perfwrap.sources.journals.journal_file import JournalFile, Records
from perfwrap.sources.journals.labels import Labels, operation_columns
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.coverage import RECORDER

CHUNK = 1 << 20
"""Records that are converted to columns at once, so that temporary copies stay small."""

OWN_FACTS = ("role", "argv", "executable", "python", "pid", "ppid")
"""Facts of a monitor about itself; its other facts are about the host."""

ENTITY = re.compile(r"^(?P<entity>(?:process|gpu|mig|cpu|disk|cgroup)/[^/]+)/(?P<key>.+)$")
"""A monitor's fact about something other than the host."""

REST = -1
"""Value of the THIN record that begins a pause of detail."""

JOURNAL = "journal"
"""The journal's own name in its coverage, used when nothing more could be written."""
MAIN_THREAD = "MainThread"

MOMENTS = [*(DESCRIBE[name] for name in ("CLOCK", "MARK", "SAMPLE", "THIN", "END")), *INSTANTS.values()]
"""Kinds that prove that the writer was running at their start."""

UNKNOWN_SIZE = ("data", "save")
"""Operations whose value -1 means unknown."""


class JournalTables:
    """Adds one journal to a timeline."""

    def __init__(self, journal: JournalFile, name: str, builder: TimelineBuilder) -> None:
        """Create the tracks of the process and of its threads."""
        self.header = journal.header
        self._journal, self.name, self._builder = journal, name, builder
        self._labels = Labels(journal.texts)
        self._records = journal.records
        kinds = journal.records["kind"]
        self._is_span = (kinds >= min(SPANS.values())) & (kinds <= max(SPANS.values()))
        facts = self._of("FACT")
        self._facts = [
            (start, self._text(key) or "", self._text(value) or "")
            for start, key, value in zip(
                facts["start"].tolist(), facts["name"].tolist(), facts["value"].tolist(), strict=True
            )
        ]
        own = {key: value for _, key, value in self._facts}
        self.role = own.get("role", "main")
        self.process = self._process(own)
        self._threads = self._thread_tracks()

    def add(self) -> None:
        """Add all rows."""
        self._add_facts()
        self._add_spans()
        self._add_sums()
        self._add_samples()
        self._add_marks()
        self._add_stacks()
        self._add_coverage()

    @property
    def source(self) -> str:
        """Who wrote the rows."""
        return "monitor" if self.role == "monitor" else RECORDER

    def _process(self, own: dict[str, str]) -> int:
        """Create the track of the process."""
        header = self.header
        process = self._builder.process(header.host, header.pid, f"{header.start_ticks}-{header.sequence}")
        rank = own.get("rank", "")
        self._builder.describe(
            process,
            role=self.role,
            rank=int(rank) if rank.isdecimal() else None,
            name=f"{self.role} {header.pid}",
        )
        return process

    def _thread_tracks(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Create the tracks of the threads; return the track of each thread index."""
        named = self._of("THREAD")
        indices = named["thread"].tolist()
        natives = dict(zip(indices, named["value"].tolist(), strict=True))
        names = {
            index: self._text(text) or "" for index, text in zip(indices, named["name"].tolist(), strict=True)
        }
        spans = self._records["kind"] & ~np.uint16(SUM) >= min(SPANS.values())
        used = np.unique(self._records["thread"][spans]).tolist()
        tracks = np.full(1 << 16, self.process, dtype=np.int32)
        for index in sorted({*indices, *used} - {0}):
            native = natives.get(index)
            # A thread that recorded before `threading` was imported has no Python name.
            name = names.get(index, "") or (MAIN_THREAD if native == self.header.pid else "")
            if name.startswith(STREAM_PREFIX) and not native:
                tracks[index] = self._builder.stream(self.process, index, name)
            else:
                tracks[index] = self._builder.thread(self.process, index, name, native or None)
        return tracks

    def _add_facts(self) -> None:
        """Add the facts, each on the track that it is about."""
        for time, key, value in self._facts:
            track, short = self._about(key)
            self._builder.add_row("facts", time=time, track=track, key=short, value=value, source=self.source)
        size = str(self._journal.size_bytes)
        opened = self.header.monotonic
        self._builder.add_row(
            "facts", time=opened, track=self.process, key="journal_bytes", value=size, source="journal"
        )

    def _about(self, key: str) -> tuple[int, str]:
        """Return the track that a fact is about, and its key there."""
        if self.role != "monitor" or key in OWN_FACTS:
            return self.process, key
        found = ENTITY.match(key)
        if found is None:
            return self._builder.host(self.header.host), key
        return self._entity(found["entity"]), found["key"]

    def _add_spans(self) -> None:
        """Add spans, a number of records at a time."""
        places = np.flatnonzero(self._is_span)
        spans = self._records["start"][places]
        # Of spans that start together, longer ones come first, so that a span comes before the spans inside it.
        order = places[np.lexsort((-self._records["duration"][places], spans))]
        unnamed = 0
        for begin in range(0, order.size, CHUNK):
            chunk = self._records[order[begin : begin + CHUNK]]
            unnamed += self._labels.without_text(chunk["name"])
            columns = {
                "start": np.ascontiguousarray(chunk["start"]),
                "duration": np.ascontiguousarray(chunk["duration"]),
                "track": self._threads[chunk["thread"]],
                "value": np.ascontiguousarray(chunk["value"]),
                **self._labels.columns(chunk["name"]),
                **operation_columns(chunk["kind"]),
            }
            unknown = pl.col("operation").is_in(UNKNOWN_SIZE) & (pl.col("value") < 0)
            self._builder.add(
                "spans",
                pl.DataFrame(columns).with_columns(
                    pl.when(unknown).then(None).otherwise(pl.col("value")).alias("value"),
                    pl.lit(self.source).alias("source"),
                ),
            )
        if unnamed:
            self._note(f"{unnamed} of its spans have lost their names")

    def _add_sums(self) -> None:
        """Add the totals of thinned steps; each period of them ends at the next THIN record."""
        sums = self._records[self._records["kind"] & SUM != 0]
        if not sums.size:
            return
        records = np.sort(self._of("THIN"), order="start")
        turns = np.append(records["start"], self._last_moment())
        place = np.searchsorted(turns[:-1], sums["start"], side="right")
        begun = records["value"][np.maximum(place - 1, 0)] if records.size else np.zeros(sums.size)
        columns = {
            "start": np.ascontiguousarray(sums["start"]),
            "end": np.maximum(turns[place], sums["start"]),
            "track": self._threads[sums["thread"]],
            "count": np.ascontiguousarray(sums["value"]),
            "duration": np.ascontiguousarray(sums["duration"]),
            "rest": begun == REST,
            **self._labels.columns(sums["name"]),
            **operation_columns(sums["kind"] & ~np.uint16(SUM)),
        }
        self._builder.add("sums", pl.DataFrame(columns).with_columns(pl.lit(self.source).alias("source")))

    def _add_samples(self) -> None:
        """Add sampled values, each series on its counter."""
        samples = self._of("SAMPLE")
        series, places = np.unique(samples["name"], return_inverse=True)
        counters = np.array([self._counter(number) for number in series.tolist()], dtype=np.int32)
        if not samples.size:
            return
        columns = {
            "time": np.ascontiguousarray(samples["start"]),
            "track": counters[places],
            "value": np.ascontiguousarray(samples["value"]).view("<f8"),
        }
        self._builder.add("samples", pl.DataFrame(columns).with_columns(pl.lit(self.source).alias("source")))

    def _counter(self, series: int) -> int:
        """Return the track of a series of samples."""
        entity, _, metric = (self._text(series) or "unknown").partition(FIELD_SEPARATOR)
        return self._builder.counter(self._entity(entity), metric or entity)

    def _entity(self, entity: str) -> int:
        """Return the track that a series or a fact is about."""
        kind, _, name = entity.partition("/")
        if kind == "process" and name.isdecimal():
            return self._builder.latest_process(self.header.host, int(name))
        return self._builder.device(self.header.host, entity)

    def _add_marks(self) -> None:
        """Add instants: events, changes of detail, and instants with a value."""
        for kind, name in (("MARK", None), ("THIN", "thin")):
            for record in self._of(kind):
                what, value = self._text(int(record["name"])), int(record["value"])
                self._builder.add_row(
                    "marks",
                    time=int(record["start"]),
                    track=int(self._threads[record["thread"]]),
                    name=name or what,
                    detail=what if name else self._text(value),
                    value=float(value) if name else None,
                    source=self.source,
                )
        for kind, number in INSTANTS.items():
            if kind != "STACK":
                self._add_instants(kind.lower(), self._records[self._records["kind"] == number])

    def _add_instants(self, name: str, records: Records) -> None:
        """Add instants with a value, each with the text of its label as its detail."""
        if not records.size:
            return
        labels = self._labels.columns(records["name"])
        columns = {
            "time": np.ascontiguousarray(records["start"]),
            "track": self._threads[records["thread"]],
            "value": np.ascontiguousarray(records["value"]).view("<f8"),
            "detail": labels.pop("name"),
            **labels,
        }
        self._builder.add(
            "marks",
            pl.DataFrame(columns).with_columns(
                pl.lit(name).alias("name"), pl.lit(self.source).alias("source")
            ),
        )

    def _add_stacks(self) -> None:
        """Add stack samples of threads, grouped by line and operation."""
        sampled = self._records[self._records["kind"] == INSTANTS["STACK"]]
        if not sampled.size:
            return
        labels = pl.DataFrame(self._labels.columns(sampled["name"]))
        rows = labels.select(
            pl.Series("time", np.ascontiguousarray(sampled["start"])),
            pl.Series("track", self._threads[sampled["thread"]]),
            pl.Series("weight", np.ascontiguousarray(sampled["value"])),
            pl.format("{} ({}:{})", "function", "file", "line").alias("stack"),
            pl.col("name").replace("", None).alias("operation"),
            "file",
            "line",
            "function",
            pl.lit(self.source).alias("source"),
        )
        self._builder.add("stacks", rows)

    def _add_coverage(self) -> None:
        """Add what was recorded until when, and what was lost."""
        last = self._last_moment()
        watched: dict[tuple[str, int], tuple[int, str | None]] = {}
        for record in self._of("COVERAGE"):
            start, duration = int(record["start"]), int(record["duration"])
            what, note = self._text(int(record["name"])) or "", self._text(int(record["value"]))
            # 1 ns means "not recorded"; a later record with the same start replaces the earlier one.
            end = start + duration if duration > 1 else start if duration else last
            watched[what, start] = (end, note)
        for (what, start), (end, note) in watched.items():
            self._cover(what, start, end, note)
            if what == JOURNAL and note:
                self._builder.warn(f"Process {self.header.pid}: {note}.")
        for record in self._of("LOST"):
            what, count = self._text(int(record["name"])) or "records", max(0, int(record["value"]))
            self._cover(what, self.header.monotonic, int(record["start"]), None, count)
            self._builder.warn(f"Process {self.header.pid} could not store {count} of its {what}.")
        self._cover_thinning(last)
        ended = self._of("END").size > 0
        note = None if ended else "ended without closing its journal: it was killed, or called os._exit"
        self._cover(self.source, self.header.monotonic, last, note, self._journal.torn)
        for note in self._journal.notes:
            self._note(note)

    def _cover_thinning(self, last: int) -> None:
        """Add from when on not everything was recorded in detail."""
        turns = self._of("THIN")
        if turns.size:
            what = self._text(int(turns["name"][0])) or "detail"
            last_of_detail = turns[turns["value"] > 0]["value"]
            stride = int(last_of_detail[-1]) if last_of_detail.size else 2
            note = f"one step in {stride} at the end; only totals of the others"
            if (turns["value"] == REST).any():
                note = (
                    f"one step in {stride} at the end, because steps are short; the others are only counted"
                )
            if self.role == "monitor":
                note = f"one sample in {int(turns['value'].max())} at the end"
            self._cover(what, int(turns["start"].min()), last, note)

    def _cover(self, what: str, start: int, end: int, note: str | None, lost: int | None = None) -> None:
        """Add one row of coverage; a row about another process goes to that process."""
        track = self.process
        if what.startswith("process/") and what[8:].isdecimal():
            track, what = self._entity(what), RECORDER
        self._builder.add_row(
            "coverage", what=what, track=track, start=start, end=end, lost=lost, note=note, source=self.source
        )

    def _last_moment(self) -> int:
        """Return the last time in the journal."""
        records = self._records
        moments = records["start"][np.isin(records["kind"], MOMENTS, kind="table")]
        ends = (records["start"] + records["duration"])[self._is_span]
        return max(int(moments.max(initial=0)), int(ends.max(initial=0)), self.header.monotonic)

    def _note(self, text: str) -> None:
        """Add a row of coverage and a warning about what was lost from this file."""
        self._cover("journal", self.header.monotonic, self._last_moment(), f"{self.name}: {text}")
        self._builder.warn(f"The journal {self.name} is damaged: {text}.")

    def _of(self, kind: str) -> Records:
        """Return the records of one kind of DESCRIBE."""
        return np.asarray(self._records[self._records["kind"] == DESCRIBE[kind]])

    def _text(self, number: int) -> str | None:
        """Return a text; None for 0 and for a lost one."""
        return self._journal.texts.get(number)
