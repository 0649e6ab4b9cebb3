"""Reads the start records: all Python processes of the run, recorded or not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from perfwrap.run_folder import START_FIELDS
from perfwrap.sources.journals.log_lines import LogLines
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.coverage import RECORDER

MAX_BYTES, MAX_STARTS = 64 << 20, 100_000
"""Bytes of all start logs of a run together; a line has at most 3 kB."""
NUMBER = re.compile(r"[0-9]{1,18}")

Identity: TypeAlias = tuple[str, int, str]
"""Host, pid and start ticks of a process."""


class Start(Struct, frozen=True):
    """One line of a start log."""

    host: str
    event: str
    pid: int
    ppid: int
    start_ticks: str
    time: int
    python: str
    vector: str
    argv: str


def read_starts(folder: Path, lines: LogLines) -> Iterator[Start]:
    """Return the start records of all hosts; truncated lines are skipped."""
    for path in sorted(folder.glob("*.log")):
        yield from parse_starts(path.stem, lines.of(path))


def parse_starts(host: str, lines: Iterable[str]) -> Iterator[Start]:
    """Return the start records in lines of a host's log; truncated lines are skipped."""
    for line in lines:
        found = dict(zip(START_FIELDS, line.split("\t"), strict=False))
        numbers = (found.get(name, "") for name in ("pid", "ppid", "monotonic_ns"))
        if len(found) == len(START_FIELDS) and all(map(NUMBER.fullmatch, numbers)):
            yield Start(
                host,
                found["event"],
                int(found["pid"]),
                int(found["ppid"]),
                found["start_ticks"],
                int(found["monotonic_ns"]),
                found["python"],
                found["vector"],
                found["argv"],
            )


def add_starts(
    starts: list[Start],
    journals: Mapping[Identity, list[tuple[int, int]]],
    to_run: Callable[[str, int], int],
    builder: TimelineBuilder,
) -> None:
    """Add the start records: facts about recorded processes, and tracks for processes without a journal.

    ``journals`` has, for each process, when each of its journals was opened and its track; ``to_run`` converts a
    host's monotonic time to the run's clock.
    """
    lives: dict[Identity, list[Start]] = {}
    for start in sorted(starts, key=lambda start: start.time):
        moved = replace(start, time=to_run(start.host, start.time))
        lives.setdefault((start.host, start.pid, start.start_ticks), []).append(moved)
    for identity, lines in lives.items():
        life = [start for start in lines if start.event != "failed"]
        opened = sorted(journals.get(identity, ()))
        # A process that called exec has several starts: a journal belongs to the last start before it.
        until = [following.time for following in life[1:]] + [None]
        for start, end in zip(life, until, strict=True):
            process = next((track for at, track in opened if end is None or at < end), None)
            opened = [(at, track) for at, track in opened if track != process]
            failure = next(
                (line.argv for line in lines if line.event == "failed" and _within(line, start, end)), None
            )
            unrecorded = process is None
            if process is None:
                process = builder.process(start.host, start.pid, f"{start.start_ticks}@{start.time}")
            if unrecorded or failure:
                _add_gap(start, process, failure, builder)
            _add_facts(start, process, builder)


def _within(line: Start, start: Start, end: int | None) -> bool:
    """Return whether the line was written between ``start`` and the next start."""
    return start.time <= line.time and (end is None or line.time < end)


def _add_gap(start: Start, process: int, failure: str | None, builder: TimelineBuilder) -> None:
    """Add to the coverage why a Python process was not recorded, or not completely."""
    note = "was forked and recorded nothing" if start.event == "fork" else "never imported torch"
    if failure:
        note = f"could not start its recorder: {failure}"
    builder.add_row(
        "coverage",
        what=RECORDER,
        track=process,
        start=start.time,
        end=start.time,
        note=note,
        source="starts",
    )


def _add_facts(start: Start, process: int, builder: TimelineBuilder) -> None:
    """Add the facts of one start record about a process."""
    facts = {
        "ppid": str(start.ppid),
        "python": start.python,
        "reached_by": start.vector,
        "argv": start.argv,
        "started": str(start.time),
    }
    for key, value in facts.items():
        builder.add_row("facts", time=start.time, track=process, key=key, value=value, source="starts")
