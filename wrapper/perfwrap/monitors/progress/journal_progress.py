"""Follow the progress of a recorded process from its journal, as cheaply as possible.

Only the kind of each new record is read, for many at once; times are read only for records that end steps or wait
for batches. The format is specified in the recorder's ``journal_format.py``.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import pairwise
from math import log2
from pathlib import Path

from perfwrap.journal_format import DESCRIBE, RECORD, SPANS, SUM
from perfwrap.monitors.progress.live_journal import Call, read_open_calls

SLOT = RECORD.size
FIRST_SLOT = 8
"""Those before are kept for what is written in place."""
BLOCK_BYTES = 1 << 18
WORDS = SLOT // 8
"""Numbers of eight bytes in a slot: the first is its start, the second its duration."""
KIND, FLAG = 30, 31
"""Offsets of the two bytes of the kind in a slot; the second distinguishes sums from spans."""
SUM_FLAG = SUM >> 8
STEP_ENDS = (SPANS["OPTIMIZER"], SPANS["BACKWARD"])
"""Kinds that end training steps, the most reliable first."""
DATA, DATA_END, THIN = SPANS["DATA"], SPANS["DATA_END"], DESCRIBE["THIN"]
IDLE_KINDS = (SPANS["GC"], SPANS["PERFWRAP"], SPANS["IDLE"], SPANS["GPU"])
"""Spans that are not progress: they also occur while a program waits."""
PROGRESS = frozenset(SPANS.values()) - set(IDLE_KINDS)
MAKING = (SPANS["GETITEM"], SPANS["COLLATE"])
IDLE, FETCH = SPANS["IDLE"], SPANS["FETCH"]
NOT_A_WORKERS = bytes(set(range(256)) - {IDLE, FETCH, *MAKING})
POLL_NS = 4_900_000_000
"""torch's workers wait five seconds for an order and then again: a wait of that length brought none."""
NO_PROGRESS = bytes(set(range(256)) - PROGRESS)
BUCKETS_PER_DOUBLING = 8


class StepTimes:
    """The durations of steps, as a histogram with buckets of 9 %; its size does not depend on the length of the run."""

    def __init__(self) -> None:
        self.count = 0
        self.total_ns = 0
        self._buckets: dict[int, int] = {}

    def add(self, duration_ns: int, many: int = 1) -> None:
        """Count steps of that duration."""
        bucket = int(log2(max(1, duration_ns)) * BUCKETS_PER_DOUBLING)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + many
        self.count += many
        self.total_ns += many * duration_ns

    def add_all(self, durations_ns: list[int]) -> None:
        """Count steps of those durations; negative ones, from threads that write out of order, count as 0."""
        known = [duration for duration in durations_ns if duration > 0]
        for bucket, many in Counter(
            [int(log2(duration) * BUCKETS_PER_DOUBLING) for duration in known]
        ).items():
            self._buckets[bucket] = self._buckets.get(bucket, 0) + many
        self.count += len(known)
        self.total_ns += sum(known)

    def quantile(self, share: float) -> float:
        """Return the duration that this share of the steps did not exceed, up to its bucket's end; 0 of none."""
        left = share * self.count
        for bucket, many in sorted(self._buckets.items()):
            left -= many
            if left <= 0:
                return float(2 ** ((bucket + 1) / BUCKETS_PER_DOUBLING))
        return 0.0


class Ends:
    """The ends of steps of one kind: how many, when the last was, how long the steps between them took."""

    def __init__(self) -> None:
        self.count = 0
        self.times = StepTimes()
        self._last_ns = 0

    def add(self, moment_ns: int, many: int = 1) -> None:
        """Count ends of steps, the last of them at that moment."""
        if self._last_ns and moment_ns > self._last_ns:
            self.times.add((moment_ns - self._last_ns) // many, many)
        self._last_ns = max(self._last_ns, moment_ns)
        self.count += many

    def add_all(self, moments_ns: list[int]) -> None:
        """Count ends of steps of which each moment is known, in about their order."""
        before = self._last_ns
        if not before and moments_ns:
            before = moments_ns[0]
            self.count += 1
            moments_ns = moments_ns[1:]
        self.times.add_all([after - then for then, after in pairwise([before, *moments_ns])])
        self._last_ns = max([before, *moments_ns])
        self.count += len(moments_ns)


class JournalProgress:
    """One journal, as far as it was read."""

    def __init__(self, path: Path, pid: int, start_ticks: int) -> None:
        self.path, self.pid, self.start_ticks = path, pid, start_ticks
        self.last_kind = 0
        """The kind of the newest record that is progress."""
        self.wait_ns = 0
        """Total time spent waiting for batches."""
        self.rests = False
        """Whether steps are currently only counted, so that their number is written late."""
        self._ends = {kind: Ends() for kind in STEP_ENDS}
        self._offset = FIRST_SLOT * SLOT
        self._last_slot = self._last_of_worker = 0
        self._sums: list[tuple[int, int, int, int]] = []
        """Offset, kind, count and duration of the sums that may still be added to."""
        self._stretch = self._offset
        """Offset at which the current loop begins."""

    @property
    def ends(self) -> Ends:
        """What ends its steps."""
        return next((ends for ends in self._ends.values() if ends.count), self._ends[STEP_ENDS[-1]])

    @property
    def has_left_loop(self) -> bool:
        """Whether its last action was to reach the end of a loader."""
        return self.last_kind == DATA_END

    @property
    def is_making(self) -> bool:
        """Whether it is a worker that has taken an order and not made its batch, according to its records."""
        record = None if self.rests else self._read(self._last_of_worker)
        return record is not None and record[0] == IDLE and record[3] - record[2] < POLL_NS

    def refresh(self, now_ns: int) -> bool:
        """Read what is new; return whether the process made progress. OSError if the file is gone."""
        file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            moved = self._look_at_sums(file, now_ns)
            while len(data := os.pread(file, BLOCK_BYTES, self._offset)) >= SLOT:
                used = len(data[KIND::SLOT].rstrip(b"\0"))
                moved |= self._take(data[: used * SLOT], now_ns)
                self._offset += used * SLOT
                if used * SLOT < BLOCK_BYTES:
                    break
        finally:
            os.close(file)
        return moved

    def open_calls(self) -> list[Call]:
        """Return the calls that it is inside, without calls that an error ended and others followed."""
        return [call for call in read_open_calls(self.path) if call.start_ns >= self._newest_start()]

    def last_record(self) -> tuple[int, int, int, int] | None:
        """Return kind, name, start and end of the newest record that is progress; None before there is one."""
        return self._read(self._last_slot)

    def _read(self, offset: int) -> tuple[int, int, int, int] | None:
        """Return kind, name, start and end of one record; None for that at the file's beginning."""
        if not offset:
            return None
        with open(self.path, "rb") as file:
            record = RECORD.unpack(os.pread(file.fileno(), SLOT, offset))
        start, duration, _, name, _, kind = record
        return kind & ~SUM, name, start, start + duration

    def _newest_start(self) -> int:
        """Return when the newest record that is no part of making a batch began."""
        last = self.last_record()
        parts = (FETCH, *MAKING, SPANS["LOADER_START"])
        return last[2] if last and last[0] not in parts else 0

    def _take(self, data: bytes, now_ns: int) -> bool:
        """Read whole slots; return whether any is progress."""
        kinds, flags = data[KIND::SLOT], data[FLAG::SLOT]
        # All numbers at once: one by one they would dominate the cost.
        numbers = memoryview(data).cast("q")
        starts, durations = numbers[::WORDS].tolist(), numbers[1::WORDS].tolist()
        surest = self._surest(kinds)
        self._ends[surest].add_all(
            [starts[slot] + durations[slot] for slot in _places(kinds, surest) if not flags[slot]]
        )
        self.wait_ns += sum(durations[slot] for slot in _places(kinds, DATA) if not flags[slot])
        for slot in _places(kinds, THIN):
            self._begin_stretch(self._offset + slot * SLOT, RECORD.unpack_from(data, slot * SLOT)[2])
        for slot in _places(flags, SUM_FLAG):
            self._sums.append((self._offset + slot * SLOT, kinds[slot], 0, 0))
            self._add_to_sum(len(self._sums) - 1, data[slot * SLOT : (slot + 1) * SLOT], now_ns)
        workers = len(kinds.rstrip(NOT_A_WORKERS))
        if workers:
            self._last_of_worker = self._offset + (workers - 1) * SLOT
        newest = len(kinds.rstrip(NO_PROGRESS))
        if newest:
            self.last_kind = kinds[newest - 1]
            self._last_slot = self._offset + (newest - 1) * SLOT
        return newest > 0

    def _surest(self, kinds: bytes) -> int:
        """Return the kind whose records end the steps."""
        return next((kind for kind in STEP_ENDS if self._ends[kind].count or kind in kinds), STEP_ENDS[-1])

    def _begin_stretch(self, offset: int, stride: int) -> None:
        """Drop the sums of the range before the one that ends here: only the last may still grow."""
        self._sums = [total for total in self._sums if total[0] > self._stretch]
        self._stretch, self.rests = offset, stride < 0

    def _look_at_sums(self, file: int, now_ns: int) -> bool:
        """Read again the sums that may have grown; return whether any has."""
        grown = [
            self._add_to_sum(place, os.pread(file, SLOT, total[0]), now_ns)
            for place, total in enumerate(self._sums)
        ]
        return any(grown)

    def _add_to_sum(self, place: int, slot: bytes, now_ns: int) -> bool:
        """Read the current value of a sum; return whether that is progress."""
        offset, kind, count, waited = self._sums[place]
        _, duration, many, _, _, _ = RECORD.unpack(slot)
        self._sums[place] = offset, kind, many, duration
        if kind in self._ends and many > count:
            self._ends[kind].add(now_ns, many - count)
        if kind == DATA:
            self.wait_ns += max(0, duration - waited)
        return many > count and kind in PROGRESS


def _places(kinds: bytes, wanted: int) -> list[int]:
    """Return the offset of a byte."""
    return [place for place, kind in enumerate(kinds) if kind == wanted] if wanted in kinds else []
