"""Adds the torch.profiler windows that the recorder took to the tracks of their run, on its clock.

A window is a PyTorch trace, ``tools/window-<host>-<pid>.json``, read like any other (``kineto_trace.py``). Its wall
times are converted with the pairs of both clocks in the process's own journal, and then checked: each optimizer step
that the recorder timed must be inside the mark that torch set around it, and must contain torch's work inside that
mark. All steps together give a range of possible clock shifts: if 0 is outside of it, its middle is applied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from perfwrap.journal_format import DESCRIBE, SPANS
from perfwrap.run_folder import TOOLS, RunFolder
from perfwrap.sources.damage import UNFORESEEN
from perfwrap.sources.journals.journal_file import JournalFile
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.clocks import HostClock, Times, host_clock

NAME = re.compile(r"window-(?P<host>.+)-(?P<pid>\d{1,10})\.json", re.ASCII)
EVENT = re.compile(
    r'"name":\s*"(?P<mark>Optimizer\.step#[^"]*|aten::[^"]*)",\s*"pid":\s*\d+,\s*"tid":\s*(\d+),'
    r'\s*"ts":\s*(\d{1,16}(?:\.\d*)?),\s*"dur":\s*(\d{1,16}(?:\.\d*)?)'
)
BASE = re.compile(r'"baseTimeNanoseconds":\s*(\d{1,19})\b')
MAX_BYTES = 1 << 29
"""Bytes; larger traces are converted without a check."""

CLOCK_ERROR = "window/clock_error_ns"
"""The fact of a process that contains the possible clock error of its window."""


class Fit(Struct, frozen=True):
    """The shift of a window's clock and its remaining error, in ns."""

    shift: int
    error: int


def add_all(
    folder: RunFolder,
    builder: TimelineBuilder,
    clock: HostClock,
    journals: Sequence[JournalFile],
    shown: Callable[[str], str] = str,
) -> None:
    """Add the windows of a run; ``clock`` is that of its first host, ``journals`` are on it.

    ``shown`` returns the name in the run of a host that a file names.
    """
    for path in sorted((folder.path / TOOLS).glob("window-*.json")):
        found = NAME.fullmatch(path.name)
        if found is not None:
            host, pid = shown(found["host"]), int(found["pid"])
            own = [each for each in journals if (each.header.host, each.header.pid) == (host, pid)]
            try:
                _add(path, host, builder, clock, own)
            except UNFORESEEN as error:
                builder.warn(f"The profiler window {path.name} cannot be read ({error}); it was skipped.")


def _add(
    path: Path, host: str, builder: TimelineBuilder, clock: HostClock, journals: Sequence[JournalFile]
) -> None:
    """Add one window of the process that wrote these journals."""
    # Imported here: most runs have no window, and a report starts faster without its reader.
    from perfwrap.sources.kineto import kineto_trace

    if not journals:
        builder.warn(f"The profiler window {path.name} is of no process of this run; it was skipped.")
        return
    if journals[0].header.wall in clock.wall:  # of the first host: its journals have more pairs
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
            source=kineto_trace.__name__.rpartition(".")[2],
        )
    kineto_trace.add(builder, path, clock, host)


def _closer(journals: Sequence[JournalFile]) -> HostClock:
    """Return the clock by all pairs in the journals."""
    pairs = []
    for journal in journals:
        clocks = journal.records[journal.records["kind"] == DESCRIBE["CLOCK"]]
        pairs.append((journal.header.monotonic, journal.header.wall))
        pairs += zip(clocks["start"].tolist(), clocks["value"].tolist(), strict=True)
    return host_clock(pairs)


def _fit(path: Path, clock: HostClock, journals: Sequence[JournalFile]) -> Fit | None:
    """Compare the optimizer steps in the trace with those that the recorder timed; None without any."""
    marks, inner = _marks(path, clock)
    steps = np.concatenate([each.records[each.records["kind"] == SPANS["OPTIMIZER"]] for each in journals])
    steps = steps[np.argsort(steps["start"])]
    begun, ended = steps["start"], steps["start"] + steps["duration"]
    # The mark of a step contains the step's middle, unless the clocks differ by half a step.
    middle = (begun + ended) // 2
    place = np.searchsorted(marks[:, 0], middle, side="right") - 1
    inside = (place >= 0) & (middle < np.append(marks[:, 1], 0)[place])
    if not inside.any():
        return None
    begun, ended, place = begun[inside], ended[inside], place[inside]
    most = int((begun - marks[place, 0]).min())
    least = int((ended - marks[place, 1]).max())
    # The recorder's step contains torch's work inside the mark, unless other hooks did some of it.
    closer_most = min(most, int((ended - inner[place, 1]).min()))
    closer_least = max(least, int((begun - inner[place, 0]).max()))
    if closer_least <= closer_most:
        least, most = closer_least, closer_most
    shift = 0 if least <= 0 <= most else (least + most) // 2
    return Fit(shift, max(abs(least - shift), abs(most - shift)))


def _marks(path: Path, clock: HostClock) -> tuple[Times, Times]:
    """Return starts and ends of the marks around optimizer steps, and of torch's work inside each mark."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace") if path.stat().st_size <= MAX_BYTES else ""
    except OSError:
        text = ""
    base = BASE.search(text)
    zero = int(base[1]) if base else 0
    marks: list[tuple[int, int]] = []
    work: list[tuple[int, int]] = []
    for name, _, start, duration in EVENT.findall(text):
        begin = zero + round(float(start) * 1000)
        (work if name.startswith("aten") else marks).append((begin, begin + round(float(duration) * 1000)))
    outer = _on_clock(marks, clock)
    found = _on_clock(work, clock)
    first = np.searchsorted(found[:, 0], outer[:, 0])
    last = np.searchsorted(found[:, 0], outer[:, 1])
    inner = [
        (found[at, 0], found[at:end, 1].max()) if end > at else tuple(mark)
        for at, end, mark in zip(first, last, outer, strict=True)
    ]
    return outer, np.array(inner, dtype=np.int64).reshape(-1, 2)


def _on_clock(pieces: list[tuple[int, int]], clock: HostClock) -> Times:
    """Return intervals of the wall clock on the clock, sorted."""
    table = np.array(sorted(pieces), dtype=np.int64).reshape(-1, 2)
    return np.asarray(clock.from_wall(table.reshape(-1)).reshape(-1, 2))
