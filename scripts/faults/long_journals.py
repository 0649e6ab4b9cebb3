"""Writes very long journals; faults.py runs it in a separate process.

``long_journals.py recorder STEPS DAYS FOLDER BUDGET``: the recorder's journal, with STEPS steps of ten spans over DAYS
days, and sometimes a new thread or a new text.
``long_journals.py monitors HERTZ DAYS FOLDER BUDGET``: the journal of the monitors.
Only the clock is simulated. Prints a JSON object with the processor time of each tenth of the work, and the memory of
the process at its end.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

INJECT = Path(__file__).resolve().parents[2] / "inject"
SECOND_NS = 10**9
DAY_NS = 86400 * SECOND_NS
TENTHS = 10
SERIES = 60
NEW_TEXT, NEW_THREAD = 20, 500
"""The number of steps after which there is a new text, or a new thread."""


class Clock:
    """A clock that moves only on request."""

    def __init__(self) -> None:
        self.began = self.time = time.monotonic_ns()
        self.wall = time.time_ns()

    def now(self) -> int:
        """Return the monotonic time."""
        return self.time

    def pair(self) -> tuple[int, int]:
        """Return the monotonic and the wall clock of now."""
        return self.time, self.wall + self.time - self.began


class Tenths:
    """Records the cost of each tenth of the work."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.resident_bytes: list[int] = []
        self._begin = time.process_time()

    def end(self) -> None:
        """End a tenth."""
        now = time.process_time()
        self.seconds.append(now - self._begin)
        self._begin = now
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        shared = int(Path("/proc/self/statm").read_text().split()[2])
        self.resident_bytes.append((pages - shared) * os.sysconf("SC_PAGE_SIZE"))


def record(steps: int, days: float, folder: str, budget: int) -> dict[str, Any]:
    """Write the spans of a program that trains for that time."""
    sys.path.insert(0, str(INJECT))
    from perfwrap_recorder import journal_format
    from perfwrap_recorder.journal import journal, lifecycle, switching
    from perfwrap_recorder.settings import Settings

    clock = Clock()
    journal.now = lifecycle.now = switching.now = clock.now
    journal.read_pair = lifecycle.read_pair = clock.pair
    lifecycle.open_current(Settings(folder, "host", budget))
    journal.fact("role", "main")
    names = [journal.text(f"part {number}\x1ftrain.py\x1f{number}\x1fmain") for number in range(9)]
    optimizer = journal.text("SGD#1\x1ftrain.py\x1f9\x1fmain")
    length = int(days * DAY_NS / steps)
    share, tenths = length // 10, Tenths()
    for step in range(1, steps + 1):
        for name in names:
            journal.span(clock.time, share, 0, name, journal_format.SYNC)
            clock.time += share
        journal.span(clock.time, share, 0, optimizer, journal_format.OPTIMIZER)
        clock.time += length - 9 * share
        if step % NEW_TEXT == 0:
            journal.span(clock.time, 1, 0, journal.text(f"text {step}"), journal_format.ZERO_GRAD)
        if step % NEW_THREAD == 0:
            words = clock.time, 1, 0, optimizer, journal_format.CLIP
            thread = threading.Thread(target=journal.span, args=words)
            thread.start()
            thread.join()
        journal.end_step(journal_format.OPTIMIZER, 1, clock.time)
        if step * TENTHS % steps < TENTHS:
            tenths.end()
    return {"spans": 10 * steps + steps // NEW_TEXT + steps // NEW_THREAD, **vars(tenths)}


def watch(hertz: float, days: float, folder: str, budget: int) -> dict[str, Any]:
    """Write the samples of monitors at that rate, for that time."""
    from perfwrap.monitors import monitor_journal as journal

    clock = Clock()
    journal.time = SimpleNamespace(monotonic_ns=clock.now, time_ns=lambda: clock.pair()[1])  # type: ignore[assignment]
    writer = journal.JournalWriter(Path(folder) / "journal", "host", budget)
    writer.fact("role", "monitor")
    series = [writer.series(f"cpu/{number}", "busy_share") for number in range(SERIES)]
    end, tenths, looks = clock.began + int(days * DAY_NS), Tenths(), 0
    while clock.time < end:
        writer.samples(clock.time, [(number, 0.5) for number in series])
        looks += 1
        if looks % 10 == 0:
            writer.flush()
        clock.time += int(SECOND_NS / hertz) * writer.stride
        if (clock.time - clock.began) * TENTHS >= (len(tenths.seconds) + 1) * (end - clock.began):
            tenths.end()
    writer.close()
    return {"looks": looks, "stride": writer.stride, "until": clock.time - clock.began, **vars(tenths)}


if __name__ == "__main__":
    kind, number, days, folder, budget = sys.argv[1:]
    work = record if kind == "recorder" else watch
    print(json.dumps(work(int(number), float(days), folder, int(budget))))
