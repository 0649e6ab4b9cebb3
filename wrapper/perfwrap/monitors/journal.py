"""Write a journal from outside of the program; the format is specified in the recorder's ``journal_format.py``.

Monitors keep to their budget by looking less often: each time another eighth of what is left of it is written
they double their interval, and a THIN record says so. A typical run of a week then ends with two looks a
minute.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from pathlib import Path

from perfwrap.journal_format import (
    DESCRIBE,
    FIELD_SEPARATOR,
    FORMAT,
    HEADER,
    MAGIC,
    RECORD,
    SAMPLE_RECORD,
)

SUFFIX = ".pwj"
SLOT = RECORD.size
PIECE = struct.Struct("<24sIHH")
"""A TEXT record: 24 bytes of text, its id, the number of the piece, the kind."""
SEGMENT_BYTES = 256 * 1024
BUDGET_BYTES = 256 * 1024 * 1024
MOST_PIECES = 0xFFFF
LAST_WORDS = 3
"""Slots behind the header that are kept for saying why nothing follows: coverage, clock, end."""
JOURNAL = "journal"
FULL = "nothing was written any more: the disk took no more"
SPENT = "nothing was written any more: the journal's budget is used up"
SAMPLE = DESCRIBE["SAMPLE"]


class JournalWriter:
    """One journal of this process; safe to use from several threads, silent for good once it cannot write."""

    def __init__(self, folder: Path, host: str, budget_bytes: int = BUDGET_BYTES) -> None:
        """Make the file; OSError when that is not possible."""
        self.path = folder / f"{host}-{os.getpid()}-{start_ticks(os.getpid())}-0{SUFFIX}"
        self.stride = 1
        """Monitors look at every so many-th of their moments only."""
        self.alive = True
        self.latest: dict[int, float] | None = None
        """The newest value of each series, where somebody has set this to a dictionary."""
        self._lock = threading.Lock()
        self._texts: dict[str, int] = {}
        self._next_text = 1
        self._kept: list[tuple[int, list[tuple[int, float]]]] = []
        self._budget = budget_bytes
        self._next_thinning = budget_bytes / 8
        self._used = 0
        self._segment_start = self._segment_end = 0
        self._segment: mmap.mmap | None = None
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        monotonic_ns, wall_ns = clock_pair()
        with self._lock:
            self._write(HEADER, MAGIC, FORMAT, os.getpid(), monotonic_ns, wall_ns)
            if self.alive:
                self._used += LAST_WORDS * SLOT
        self._opened_ns = monotonic_ns
        # What is said when there is no room must be there before.
        for text in (JOURNAL, FULL, SPENT):
            self.text(text)
        self.clock()

    def text(self, text: str, keep: bool = True) -> int:
        """Return the id of a text; ``keep=False`` does not remember it, for texts that soon nobody needs."""
        with self._lock:
            number = self._texts.get(text)
            if number is None:
                number, self._next_text = self._next_text, self._next_text + 1
                if keep:
                    self._texts[text] = number
                self._write_text(number, text.encode("utf-8", "replace"))
        return number

    def latest_values(self) -> dict[str, float]:
        """Return the newest value of each series that is kept by its text: of lasting things, not of processes."""
        with self._lock:
            names = {number: text for text, number in self._texts.items() if FIELD_SEPARATOR in text}
            return {names[number]: value for number, value in (self.latest or {}).items() if number in names}

    def series(self, entity: str, metric: str, keep: bool = True) -> int:
        """Return the id of a series of samples."""
        return self.text(entity + FIELD_SEPARATOR + metric, keep)

    def samples(self, time_ns: int, values: list[tuple[int, float]]) -> None:
        """Keep one value per series, all taken at ``time_ns``, until the next flush."""
        with self._lock:
            self._kept.append((time_ns, values))
            if self.latest is not None:
                self.latest.update(values)

    def flush(self) -> None:
        """Write the samples kept so far; in one go, because the first write after a pause is the dear one."""
        with self._lock:
            kept, self._kept = self._kept, []
            for time_ns, values in kept:
                for series, value in values:
                    self._write(SAMPLE_RECORD, time_ns, 0, value, series, 0, SAMPLE)

    def fact(self, key: str, value: object, keep: bool = True) -> None:
        """Write down what was learned once."""
        self._describe("FACT", self.text(key, keep), self.text(str(value), keep))

    def mark(self, name: str, detail: str = "") -> None:
        """Write down that something happened now."""
        self._describe("MARK", self.text(name), self.text(detail) if detail else 0)

    def watched(self, what: str, since_ns: int, until_ns: int = 0, note: str = "") -> None:
        """Say that ``what`` is watched from then on, or was until ``until_ns``.

        A later record with the same name and start replaces the earlier one.
        """
        duration_ns = max(1, until_ns - since_ns) if until_ns else 0
        self._describe("COVERAGE", self.text(what), self.text(note) if note else 0, since_ns, duration_ns)

    def not_watched(self, what: str, note: str, keep: bool = True) -> None:
        """Say why ``what`` is not watched: coverage of one nanosecond, with a note."""
        self._describe("COVERAGE", self.text(what, keep), self.text(note, keep), duration_ns=1)

    def lost(self, what: str, count: int) -> None:
        """Say how many of something could not be kept."""
        self._describe("LOST", self.text(what), count)

    def thin(self, what: str, stride: int) -> None:
        """Say that from here on ``what`` is looked at only every ``stride``-th time."""
        self._describe("THIN", self.text(what), stride)

    def clock(self) -> int:
        """Write down the monotonic and the wall clock of one moment; return how far the latter is ahead."""
        monotonic_ns, wall_ns = clock_pair()
        self._describe("CLOCK", 0, wall_ns, monotonic_ns)
        return wall_ns - monotonic_ns

    def close(self) -> None:
        """Write the orderly end and give back what was not used of the file."""
        self.flush()
        self.clock()
        self._describe("END", 0, 0)
        with self._lock:
            self._stop()
            os.truncate(self._file, self._used)
            os.close(self._file)

    def _describe(self, kind: str, name: int, value: int, start_ns: int = 0, duration_ns: int = 0) -> None:
        with self._lock:
            self._write(RECORD, start_ns or time.monotonic_ns(), duration_ns, value, name, 0, DESCRIBE[kind])

    def _write_text(self, number: int, encoded: bytes) -> None:
        for piece in range(min(MOST_PIECES, -(-len(encoded) // 24)) or 1):
            self._write(PIECE, encoded[24 * piece : 24 * piece + 24], number, piece, DESCRIBE["TEXT"])

    def _write(self, layout: struct.Struct, *fields: object) -> None:
        """Append one record, its kind last; the lock is held. Without room the journal falls silent."""
        if self._used == self._segment_end and self.alive:
            self._grow()
        if self._segment is None:
            return
        layout.pack_into(self._segment, self._used - self._segment_start, *fields)
        self._used += SLOT
        if self._used >= self._next_thinning:
            self._thin()

    def _grow(self) -> None:
        """Map one more segment, allocated for real: touching a sparse page on a full disk is SIGBUS."""
        size = min(SEGMENT_BYTES, self._budget - self._used) // mmap.PAGESIZE * mmap.PAGESIZE
        if size <= 0:
            self._say_why(SPENT)
            self._stop()
            return
        try:
            os.posix_fallocate(self._file, self._used, size)
            segment = mmap.mmap(self._file, size, offset=self._used)
        except (OSError, ValueError):
            self._say_why(FULL)
            self._stop()
            return
        if self._segment is not None:
            self._segment.close()
        self._segment, self._segment_start, self._segment_end = segment, self._used, self._used + size

    def _say_why(self, why: str) -> None:
        """Write an end into the slots that were kept for it; the lock is held."""
        if why not in self._texts:
            return  # Not even the first segment could be had.
        monotonic_ns, wall_ns = clock_pair()
        watched_ns = max(2, monotonic_ns - self._opened_ns)
        records = (
            (self._opened_ns, watched_ns, self._texts[why], self._texts[JOURNAL], 0, DESCRIBE["COVERAGE"]),
            (monotonic_ns, 0, wall_ns, 0, 0, DESCRIBE["CLOCK"]),
            (monotonic_ns, 0, 0, 0, 0, DESCRIBE["END"]),
        )
        os.pwrite(self._file, b"".join(RECORD.pack(*record) for record in records), HEADER.size)

    def _stop(self) -> None:
        """Fall silent for good."""
        self.alive = False
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def _thin(self) -> None:
        """Double every monitor's interval, and set the mark at which that happens again."""
        self._next_thinning = self._used + (self._budget - self._used) / 8
        self.stride *= 2
        self._write(RECORD, time.monotonic_ns(), 0, self.stride, 0, 0, DESCRIBE["THIN"])


def clock_pair() -> tuple[int, int]:
    """Return the monotonic and the wall clock of one moment, in nanoseconds."""
    before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    return (before + after) // 2, wall


def start_ticks(pid: int) -> int:
    """Return field 22 of /proc/PID/stat, which with the pid names a process for good."""
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    return int(stat[stat.rindex(b")") + 2 :].split()[19])
