"""Puts the windows of torch's profiler that the recorder took onto the tracks and the clock of their run.

A window is a trace of PyTorch's, ``tools/window-<host>-<pid>.json``, read as any other (``kineto.py``). Its wall clock
goes to the run's by the pairs of both clocks that the process's own journal holds. Whether that is right is checked:
each step of an optimizer that the recorder timed lies inside of the mark that torch itself set around it. Those marks
leave room for one shift of the clock, from the least to the most that they allow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perfwrap.journal_format import DESCRIBE, SPANS
from perfwrap.run_folder import TOOLS, RunFolder
from perfwrap.sources import kineto
from perfwrap.sources.journal_file import JournalFile
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.clocks import HostClock, Times, host_clock

NAME = re.compile(r"window-(?P<host>.+)-(?P<pid>\d+)\.json")
MARK = re.compile(
    r'"name":\s*"Optimizer\.step#[^"]*",\s*"pid":\s*(\d+),\s*"tid":\s*\d+,\s*"ts":\s*([\d.]+),\s*"dur":\s*([\d.]+)'
)
BASE = re.compile(r'"baseTimeNanoseconds":\s*(\d+)')
MOST_BYTES = 1 << 29
"""Larger traces are put onto the clock without a check."""

CLOCK_ERROR = "window/clock_error_ns"
"""The fact of a process that says by how much its window may be off."""


@dataclass(frozen=True)
class Fit:
    """By how much the clock of a window had to be moved, and how far off it may still be, in ns."""

    shift: int
    error: int


def add_all(
    folder: RunFolder, builder: TimelineBuilder, clock: HostClock, journals: Sequence[JournalFile]
) -> None:
    """Add the windows of a run; ``clock`` is that of its first host, ``journals`` are on it."""
    for path in sorted((folder.path / TOOLS).glob("window-*.json")):
        found = NAME.fullmatch(path.name)
        if found is not None:
            own = [each for each in journals if each.header.pid == int(found["pid"])]
            _add(
                path,
                found["host"],
                builder,
                clock,
                [each for each in own if each.header.host == found["host"]],
            )


def _add(
    path: Path, host: str, builder: TimelineBuilder, clock: HostClock, journals: Sequence[JournalFile]
) -> None:
    """Add one window of a process that wrote these journals."""
    if not journals:
        builder.warn(f"The window {path.name} belongs to no process of this run; it was left out.")
        return
    if journals[0].header.wall in clock.wall:  # of the first host: its journals know more of the clock
        clock = _closer(journals)
    fit = _fit(path, clock, journals)
    process = builder.latest_process(host, journals[0].header.pid)
    if fit is not None:
        clock = HostClock(clock.monotonic + fit.shift, clock.wall)
        builder.add_row(
            "facts",
            time=journals[0].header.monotonic,
            track=process,
            key=CLOCK_ERROR,
            value=str(fit.error),
            source=kineto.__name__.rpartition(".")[2],
        )
    kineto.add(builder, path, clock, host)


def _closer(journals: Sequence[JournalFile]) -> HostClock:
    """Return the clock by all pairs that the journals hold."""
    pairs = []
    for journal in journals:
        clocks = journal.records[journal.records["kind"] == DESCRIBE["CLOCK"]]
        pairs.append((journal.header.monotonic, journal.header.wall))
        pairs += zip(clocks["start"].tolist(), clocks["value"].tolist(), strict=True)
    return host_clock(pairs)


def _fit(path: Path, clock: HostClock, journals: Sequence[JournalFile]) -> Fit | None:
    """Hold the steps of optimizers in the trace against those that the recorder timed; None without any."""
    start, end = _marks(path)
    steps = np.concatenate([each.records[each.records["kind"] == SPANS["OPTIMIZER"]] for each in journals])
    if not start.size or not steps.size:
        return None
    start, end = clock.from_wall(start), clock.from_wall(end)
    begun = np.sort(steps["start"])
    ended = begun + steps["duration"][np.argsort(steps["start"])]
    # The mark of a step holds its middle, unless the clocks are off by half a step.
    place = np.searchsorted(start, (begun + ended) // 2, side="right") - 1
    inside = (place >= 0) & ((begun + ended) // 2 < end[place])
    if not inside.any():
        return None
    most = int((begun[inside] - start[place[inside]]).min())
    least = int((ended[inside] - end[place[inside]]).max())
    shift = 0 if least <= 0 <= most else (least + most) // 2
    return Fit(shift, max(abs(least - shift), abs(most - shift)))


def _marks(path: Path) -> tuple[Times, Times]:
    """Return the wall times of the marks around steps of optimizers in a trace, sorted."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace") if path.stat().st_size <= MOST_BYTES else ""
    except OSError:
        text = ""
    base = BASE.search(text)
    zero = int(base[1]) if base else 0
    times = [
        (zero + round(float(start) * 1000), round(float(duration) * 1000))
        for _, start, duration in MARK.findall(text)
    ]
    found = np.array(sorted(times), dtype=np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 0] + found[:, 1]
