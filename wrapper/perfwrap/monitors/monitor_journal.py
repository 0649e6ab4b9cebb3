"""Write a journal from outside the program; the format is specified in the recorder's ``journal_format.py``.

Monitors keep to their budget by sampling less often: each time another eighth of the remaining budget is written,
they double their interval and write a THIN record. A typical run of a week then ends with two samples a minute.
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
    PIECE_BYTES,
    RECORD,
    SAMPLE_RECORD,
    TEXT_RECORD,
)

SUFFIX = ".pwj"
SLOT = RECORD.size
SEGMENT_BYTES = 256 * 1024
BUDGET_BYTES = 256 * 1024 * 1024
MAX_PIECES = 0xFFFF
LAST_WORDS = 3
"""Slots after the header, reserved for the reason why the journal ends: coverage, clock, end."""
JOURNAL = "journal"
FULL = "nothing was written any more: the disk took no more"
SPENT = "nothing was written any more: the journal's budget is used up"
SAMPLE = DESCRIBE["SAMPLE"]


class JournalWriter:
    """One journal of this process; thread-safe. After a failed write it writes nothing more."""

    def __init__(self, folder: Path, host: str, budget_bytes: int = BUDGET_BYTES) -> None:
        """Create the file; OSError if that is not possible."""
        self.path = folder / f"{host}-{os.getpid()}-{start_ticks(os.getpid())}-0{SUFFIX}"
        self.stride = 1
        """Monitors use only every ``stride``-th of their ticks."""
        self.alive = True
        self.latest: dict[int, float] | None = None
        """The newest value of each series, if this was set to a dictionary."""
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
        # The texts for a full journal must be written before it is full.
        for text in (JOURNAL, FULL, SPENT):
            self.text(text)
        self.clock()

    def text(self, text: str, keep: bool = True) -> int:
        """Return the id of a text; ``keep=False`` does not cache it, for texts that are used only once."""
        with self._lock:
            number = self._texts.get(text)
            if number is None:
                number, self._next_text = self._next_text, self._next_text + 1
                if keep:
                    self._texts[text] = number
                self._write_text(number, text.encode("utf-8", "replace"))
        return number

    def latest_values(self) -> dict[str, float]:
        """Return the newest value of each series that is cached by its text; series of processes are not."""
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
        """Write the buffered samples, all at once: the first write after a pause is the expensive one."""
        with self._lock:
            kept, self._kept = self._kept, []
            for time_ns, values in kept:
                for series, value in values:
                    self._write(SAMPLE_RECORD, time_ns, 0, value, series, 0, SAMPLE)

    def fact(self, key: str, value: object, keep: bool = True) -> None:
        """Write a fact."""
        self._describe("FACT", self.text(key, keep), self.text(str(value), keep))

    def mark(self, name: str, detail: str = "") -> None:
        """Write a mark: something happened now."""
        self._describe("MARK", self.text(name), self.text(detail) if detail else 0)

    def watched(self, what: str, since_ns: int, until_ns: int = 0, note: str = "") -> None:
        """Record that ``what`` is watched from ``since_ns`` on, or was until ``until_ns``.

        A later record with the same name and start replaces the earlier one.
        """
        duration_ns = max(1, until_ns - since_ns) if until_ns else 0
        self._describe("COVERAGE", self.text(what), self.text(note) if note else 0, since_ns, duration_ns)

    def not_watched(self, what: str, note: str, keep: bool = True) -> None:
        """Record why ``what`` is not watched: coverage of one nanosecond, with a note."""
        self._describe("COVERAGE", self.text(what, keep), self.text(note, keep), duration_ns=1)

    def lost(self, what: str, count: int) -> None:
        """Record how many of something were lost."""
        self._describe("LOST", self.text(what), count)

    def thin(self, what: str, stride: int) -> None:
        """Record that from now on ``what`` is sampled only every ``stride``-th time."""
        self._describe("THIN", self.text(what), stride)

    def clock(self) -> int:
        """Write the monotonic and the wall clock of one moment; return the wall clock minus the monotonic."""
        monotonic_ns, wall_ns = clock_pair()
        self._describe("CLOCK", 0, wall_ns, monotonic_ns)
        return wall_ns - monotonic_ns

    def close(self) -> None:
        """Write the orderly end and truncate the unused rest of the file."""
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
        for piece in range(min(MAX_PIECES, -(-len(encoded) // PIECE_BYTES)) or 1):
            self._write(
                TEXT_RECORD, encoded[PIECE_BYTES * piece :][:PIECE_BYTES], number, piece, DESCRIBE["TEXT"]
            )

    def _write(self, layout: struct.Struct, *fields: object) -> None:
        """Append one record, its kind last; the lock is held. Without room the journal stops writing."""
        if self._used == self._segment_end and self.alive:
            self._grow()
        if self._segment is None:
            return
        layout.pack_into(self._segment, self._used - self._segment_start, *fields)
        self._used += SLOT
        if self._used >= self._next_thinning:
            self._thin()

    def _grow(self) -> None:
        """Map one more segment, really allocated: touching a sparse page on a full disk is SIGBUS."""
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
        """Write an end into the slots reserved for it; the lock is held."""
        if why not in self._texts:
            return  # Not even the first segment could be allocated.
        monotonic_ns, wall_ns = clock_pair()
        watched_ns = max(2, monotonic_ns - self._opened_ns)
        records = (
            (self._opened_ns, watched_ns, self._texts[why], self._texts[JOURNAL], 0, DESCRIBE["COVERAGE"]),
            (monotonic_ns, 0, wall_ns, 0, 0, DESCRIBE["CLOCK"]),
            (monotonic_ns, 0, 0, 0, 0, DESCRIBE["END"]),
        )
        os.pwrite(self._file, b"".join(RECORD.pack(*record) for record in records), HEADER.size)

    def _stop(self) -> None:
        """Write nothing from now on."""
        self.alive = False
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def _thin(self) -> None:
        """Double every monitor's interval, and set the next size at which that happens."""
        self._next_thinning = self._used + (self._budget - self._used) / 8
        self.stride *= 2
        self._write(RECORD, time.monotonic_ns(), 0, self.stride, 0, 0, DESCRIBE["THIN"])


def clock_pair() -> tuple[int, int]:
    """Return the monotonic and the wall clock of one moment, in nanoseconds."""
    before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    return (before + after) // 2, wall


def start_ticks(pid: int) -> int:
    """Return field 22 of /proc/PID/stat, which together with the pid identifies a process."""
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    return int(stat[stat.rindex(b")") + 2 :].split()[19])
