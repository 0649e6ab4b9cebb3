"""Reads logs of nvidia-smi: ``--query-gpu … --format=csv`` and ``dmon``, as people write them.

The columns are described by ``nvidia-smi --help-query-gpu`` and the manual's section on dmon. Seen: headers with
units, cells with units, neither (``nounits``), no header, custom headers (``utilization_gpu_percent``), UTF-16 from
PowerShell's redirection, repeated headers, missing values (``[N/A]``, ``-``, ``ERR!``).

Times are those of the wall clock; without a zone they are taken as UTC. The series are those of perfwrap's own
monitor (``utilization_share``, ``memory_used_bytes``, …) on ``gpu/N`` of the host ``unknown``.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from perfwrap.sources.tables.csv_text import read_content
from perfwrap.sources.tables.nvidia_smi_columns import (
    SLOWED,
    Column,
    columns_of,
    guessed_columns,
    is_header,
    looks_like_values,
    number_of,
    reasons_in,
)
from perfwrap.sources.wall_times import find_time
from perfwrap.timeline.builder import TimelineBuilder

SOURCE = "nvidia-smi"
HOST = "unknown"
REASON = "throttle/"
"""Prefix of the series of one reason for lowered clocks."""
SLOWING = tuple(f"{REASON}{reason}" for reason in SLOWED)
SECOND_NS = 1_000_000_000
HEAD_LINES = 5
TIME_OF_DAY = re.compile(r"^\d\d:\d\d:\d\d$")
"""Times of dmon -o T, without a date."""
GUESS_LINES = 200
"""Number of lines that identify columns without a header."""


def recognises(path: Path, head: bytes) -> bool:
    """Return whether the file with that beginning is an nvidia-smi log."""
    rows = [row for row in _rows(_decoded(head).splitlines()[:HEAD_LINES]) if row]
    if not rows or "\0" in rows[0][0]:
        return False
    return any(is_header(row) for row in rows) or looks_like_values(rows[0])


def add(builder: TimelineBuilder, path: Path) -> None:
    """Add the values of the log; invalid lines are counted in a warning."""
    text = _decoded(read_content(path))
    log = _Log(builder, path.name)
    if not any(is_header(row) for row in _rows(_lines(text, HEAD_LINES))):
        log.columns = guessed_columns([row for row in _rows(_lines(text, GUESS_LINES)) if row])
        builder.warn(f"{path.name} has no column names; the columns were identified by their units.")
    for row in _rows(_lines(text)):
        log.take(row)
    log.finish()


class _Log:
    """Adds one log to a timeline."""

    def __init__(self, builder: TimelineBuilder, name: str) -> None:
        self.columns: list[Column] = []
        self._builder, self._name = builder, name
        self._numbers: dict[str, int] = {}
        self._facts: dict[tuple[int, str], str] = {}
        self._times: dict[int, list[int]] = {}
        self._values: dict[int, list[float]] = {}
        self._spans: dict[int, tuple[int, int]] = {}
        self._skipped = self._untimed = 0
        self._zoneless = False
        self._moment: dict[int, int] = {}

    def take(self, row: list[str]) -> None:
        """Add one line."""
        if not row or not any(row):
            return
        if is_header(row):
            self.columns = columns_of(row)
            return
        if row[0].startswith("#"):
            self.columns = [
                column.with_unit(unit) for column, unit in zip(self.columns, _bare(row), strict=False)
            ]
            return
        cells = list(zip(self.columns, row, strict=False))
        # Of two columns with the same metric (power.draw, power.draw.average), the first is used.
        found = {column.metric: text for column, text in reversed(cells) if column.metric}
        values = {
            column.metric: value
            for column, text in reversed(cells)
            if column.factor and (value := number_of(text, column)) is not None
        }
        for column, text in cells:
            if column.metric.startswith(REASON) and not column.factor:
                values |= reasons_in(column.metric, text)
        slowed = [values[name] for name in SLOWING if name in values]
        if slowed:
            values["throttled_share"] = max(slowed)
        if not values or len(row) < len(self.columns):
            self._skipped += 1
            return
        gpu = self._gpu(found)
        time = self._time(found, gpu)
        if time is None:
            self._skipped += 1
            return
        self._keep(gpu, time, found, values)

    def finish(self) -> None:
        """Write everything to the timeline."""
        for counter, times in self._times.items():
            columns = {"time": times, "value": self._values[counter], "track": [counter] * len(times)}
            self._builder.add("samples", {**columns, "source": [SOURCE] * len(times)})
        for (track, key), value in self._facts.items():
            begin = self._spans[track][0]
            self._builder.add_row("facts", time=begin, track=track, key=key, value=value, source=SOURCE)
        for track, (begin, end) in self._spans.items():
            self._builder.add_row("coverage", what="gpu", track=track, start=begin, end=end, source=SOURCE)
        if self._skipped:
            self._builder.warn(f"{self._skipped} lines of {self._name} could not be read; they were skipped.")
        if self._untimed:
            self._builder.warn(f"The lines of {self._name} have no dates; one line per second is assumed.")
        elif self._zoneless:
            self._builder.warn(f"The times in {self._name} have no time zone; UTC is assumed.")

    def _keep(self, gpu: int, time: int, found: dict[str, str], values: dict[str, float]) -> None:
        """Keep the values of one GPU at one moment."""
        begin, end = self._spans.get(gpu, (time, time))
        self._spans[gpu] = min(begin, time), max(end, time)
        for key in (
            "memory_total_bytes",
            "power_limit_watts",
            "power_limit_default_watts",
            "sm_clock_max_hertz",
        ):
            if key in values:
                self._facts[gpu, key] = f"{values.pop(key):.0f}"
        for key in ("name", "uuid", "driver_version"):
            if found.get(key):
                self._facts[gpu, key] = found[key]
        values.pop("memory_free_bytes", None)
        for metric, value in values.items():
            counter = self._builder.counter(gpu, metric)
            self._times.setdefault(counter, []).append(time)
            self._values.setdefault(counter, []).append(value)

    def _gpu(self, found: dict[str, str]) -> int:
        """Return the track of the GPU that a line is about."""
        index = found.get("index", "")
        if not index.isdecimal():
            name = found.get("uuid") or found.get("bus") or ""
            index = str(self._numbers.setdefault(name, len(self._numbers)))
        return self._builder.device(HOST, f"gpu/{int(index)}")

    def _time(self, found: dict[str, str], gpu: int) -> int | None:
        """Return the time of a line; without times, one second after the GPU's last line."""
        text = " ".join(found[key] for key in ("date", "time") if key in found)
        if not text or TIME_OF_DAY.match(text):
            self._untimed += 1
            self._moment[gpu] = self._moment.get(gpu, 0) + SECOND_NS
            return self._moment[gpu]
        time = find_time(text)
        if time is None:
            return None
        self._zoneless |= not time.zoned
        return time.nanoseconds


def _decoded(content: bytes) -> str:
    """Return the text of a file in UTF-8, or in UTF-16 if it begins with that byte order mark."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content[: len(content) // 2 * 2].decode("utf-16", "replace")
    if content[1:2] == b"\0":
        return content.decode("utf-16-le", "replace")
    return content.decode("utf-8-sig", "replace")


def _lines(text: str, most: int | None = None) -> Iterator[str]:
    """Return lines one by one: a list of a large log would need several times the memory."""
    return (line.rstrip("\n") for line in islice(io.StringIO(text, newline=None), most))


def _rows(lines: Iterable[str]) -> Iterator[list[str]]:
    """Return the cells of each line: separated by commas, or by spaces in dmon's tables."""
    for line in lines:
        if "," in line:
            try:
                yield [
                    cell.strip() for cell in next(csv.reader([line.replace("\0", "")], skipinitialspace=True))
                ]
            except csv.Error:
                yield []
        else:
            yield line.split()


def _bare(row: list[str]) -> list[str]:
    """Return a line of dmon's header without its first sign."""
    return [cell for cell in [row[0].lstrip("#").strip(), *row[1:]] if cell]
