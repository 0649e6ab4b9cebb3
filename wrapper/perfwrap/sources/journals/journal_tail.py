"""Follows a journal that is still being written: reads only new records, keeps a bounded recent part.

The format is specified in the recorder's ``journal_format.py`` (FORMAT 1). Two parts of it change after they were
written: the reserved slots at the beginning, and the sums of the current period of thinned steps. Both are read
again each time, and so are slots that were claimed and not yet finished.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np

from perfwrap.journal_format import DESCRIBE, FIELD_SEPARATOR, SPANS, SUM
from perfwrap.sources.journals.journal_file import (
    KINDS,
    RESERVED,
    SLOT,
    Header,
    JournalFile,
    Records,
    gather_texts,
    join_text,
    read_header,
    sane,
    used_slots,
)
from perfwrap.sources.journals.span_counts import SpanCounts

LASTING = np.array(sorted(DESCRIBE[name] for name in ("THREAD", "FACT", "COVERAGE", "LOST", "END")))
"""Kinds that are always kept: they identify processes and threads, and say what is recorded."""
MAX_LASTING = 20_000
"""Maximum number of those: a monitor writes some for each process that it finds."""
LOOK_SLOTS, BLOCK_SLOTS = 128, 1 << 18
"""Slots that are read to check for new ones, and at once if there are many (8 MiB)."""
MAX_AGAIN = 4096
"""Maximum number of slots that are read again because they may have changed."""
STEP_ENDS = tuple(SPANS[name] for name in ("OPTIMIZER", "BACKWARD", "FETCH"))
"""A window that begins after one of these, the most reliable first, begins with a whole step."""


class JournalTail:
    """One journal as far as it was read; ``refresh`` reads on, ``journal`` returns the kept records."""

    def __init__(self, path: Path) -> None:
        """Read the header; Unreadable or OSError if that fails."""
        self.path = path
        self.header: Header = read_header(path)
        self.begin = 0
        """Spans and samples before this time are not kept; 0 while everything is kept."""
        self._front = np.zeros(RESERVED, SLOT)
        self._next = RESERVED
        self._window = np.zeros(0, SLOT)
        self._numbers = np.zeros(0, np.int64)
        self._lasting = np.zeros(0, SLOT)
        self._pending: list[int] = []
        self._pieces: dict[int, dict[int, bytes]] = {}
        self._dropped = SpanCounts(self._loader_name)
        self._periods = (0, 0)

    @property
    def ended(self) -> bool:
        """Whether the writer has closed the journal: then there will be no more records."""
        return any(bool((part["kind"] == DESCRIBE["END"]).any()) for part in (self._front, self._lasting))

    @property
    def role(self) -> str:
        """The role that the writer recorded; ``main`` until it has."""
        described = np.concatenate([self._front, self._lasting])
        for fact in described[described["kind"] == DESCRIBE["FACT"]]:
            if self._text(int(fact["name"])) == "role":
                return self._text(int(fact["value"])) or "main"
        return "main"

    @property
    def slots(self) -> int:
        """Number of slots read."""
        return self._next

    def refresh(self, most: int) -> bool:
        """Read new records, and keep about ``most`` recent ones; return whether there were any.

        Raises OSError if the file was deleted.
        """
        file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            front = _read(file, 0, RESERVED)
            changed = front.tobytes() != self._front[: front.size].tobytes()
            self._front[: front.size] = front
            self._gather(front)
            changed |= self._read_again(file)
            blocks = LOOK_SLOTS
            while True:
                slots = _read(file, self._next, blocks)
                used = used_slots(slots)
                self._take(slots[:used], self._next + np.arange(used))
                self._next += used
                self._trim(most)
                changed |= used > 0
                if used < blocks:
                    return changed
                blocks = BLOCK_SLOTS
        finally:
            os.close(file)

    def journal(self, begin: int, alive: bool) -> JournalFile:
        """Return the kept records from ``begin`` on, as a copy.

        The missing end of a writer that is ``alive`` is no loss: it gets an end record here.
        """
        recent = self._window[self._window["start"] >= begin] if begin else self._window
        lasting = np.concatenate([self._front[self._front["kind"] != 0], self._lasting])
        if alive and not self.ended:
            lasting = np.append(lasting, _end_record())
        records, notes = sane(np.concatenate([lasting, recent]), self.header.monotonic)
        named = np.isin(records["kind"], [DESCRIBE[name] for name in ("FACT", "MARK", "COVERAGE")])
        used = np.unique(np.concatenate([records["name"], records["value"][named]])).tolist()
        texts = {number: self._text(number) for number in used if number in self._pieces}
        return JournalFile(
            self.header, records, texts, len(self._pending), (self._next + 1) * SLOT.itemsize, tuple(notes)
        )

    def count_before(self, begin: int) -> Counter[int]:
        """Return how many spans of each kind are before ``begin`` or no longer kept."""
        return self._dropped.and_also(self._window[self._window["start"] < begin]).kinds

    def loaders(self) -> dict[str, tuple[int, int, int | None]]:
        """Return for each loader its iterations, and the batches of the current and the previous one."""
        counts = self._dropped.and_also(self._window)
        return {
            name: (started, counts.batches[name], counts.whole.get(name) or None)
            for name, started in counts.starts.items()
        }

    def _read_again(self, file: int) -> bool:
        """Read again what may have changed; return whether anything had."""
        changed = False
        still = []
        for number in self._pending:
            found = _read(file, number, 1)
            if found.size and found["kind"][0]:
                self._take(found.copy(), np.array([number]))
                changed = True
            else:
                still.append(number)
        self._pending = still[-MAX_AGAIN:]
        open_sums = np.flatnonzero(self._is_open(self._window))[-MAX_AGAIN:]
        for place in open_sums.tolist():
            found = _read(file, int(self._numbers[place]), 1)
            if found.size and found[0] != self._window[place]:
                self._window[place] = found[0]
                changed = True
        return changed

    def _take(self, slots: Records, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        """Keep new slots, sorted by their use."""
        kinds = slots["kind"]
        self._pending += numbers[kinds == 0].tolist()
        self._gather(slots)
        is_lasting = np.isin(kinds, LASTING)
        if is_lasting.any():
            self._lasting = np.concatenate([self._lasting, slots[is_lasting]])[-MAX_LASTING:]
        stays = ~is_lasting & np.isin(kinds, KINDS) & (kinds != DESCRIBE["TEXT"])
        self._window = np.concatenate([self._window, slots[stays]])
        self._numbers = np.concatenate([self._numbers, numbers[stays]])
        begun = np.sort(slots["start"][kinds == DESCRIBE["THIN"]])[-2:].tolist()
        older, newer = sorted([*self._periods, *begun])[-2:]
        self._periods = older, newer

    def _text(self, number: int) -> str:
        """Return a text as far as it was read."""
        return join_text(self._pieces[number]) if number in self._pieces else ""

    def _loader_name(self, number: int) -> str:
        """Return the first field of a label: ``loader/1``."""
        return self._text(number).partition(FIELD_SEPARATOR)[0]

    def _gather(self, slots: Records) -> None:
        """Keep the texts in the slots."""
        gather_texts(slots[slots["kind"] == DESCRIBE["TEXT"]], self._pieces)

    def _is_open(self, records: Records) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return which records are sums that may still change: those of the current and the previous period."""
        return np.asarray((records["kind"] & SUM != 0) & (records["start"] >= self._periods[0]))

    def _trim(self, most: int) -> None:
        """Drop the oldest records if there are more than twice as many as wanted."""
        if self._window.size <= 2 * most:
            return
        is_old = np.arange(self._window.size) < self._window.size - most
        is_old &= ~self._is_open(self._window)
        self._dropped.add(self._window[is_old])
        self._window, self._numbers = self._window[~is_old], self._numbers[~is_old]
        self.begin = max(self.begin, _first_whole_step(self._window))


def _read(file: int, slot: int, count: int) -> Records:
    """Return up to ``count`` slots from a slot on, without a last truncated one."""
    offset = (1 + slot) * SLOT.itemsize
    raw = os.pread(file, count * SLOT.itemsize, offset)
    return np.array(np.frombuffer(raw, SLOT, count=len(raw) // SLOT.itemsize))


def _first_whole_step(window: Records) -> int:
    """Return from when on the window contains whole steps: where a period with detail begins or a step ends."""
    in_time = np.sort(window[: window.size // 2], order="start")
    begins = in_time["start"][(in_time["kind"] == DESCRIBE["THIN"]) & (in_time["value"] > 0)]
    if begins.size:
        return int(begins[0])
    for kind in STEP_ENDS:
        ends = in_time[in_time["kind"] == kind]
        if ends.size:
            return int(ends["start"][0] + ends["duration"][0])
    return int(in_time["start"][0]) if in_time.size else 0


def _end_record() -> Records:
    """Return the record of a writer's end; it has no time, so that it does not extend the journal."""
    record = np.zeros(1, SLOT)
    record["kind"] = DESCRIBE["END"]
    return record
