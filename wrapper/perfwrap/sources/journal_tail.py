"""Follows a journal that is still being written: reads only what is new, keeps a bounded recent part of it.

The format is specified in the recorder's ``journal_format.py`` (FORMAT 1). Two things in it change after they were
written: the slots in front that are kept for the end, and the sums of the present stretch of thinned steps.
Both are read again each time, and so are slots that were claimed and not yet finished.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np

from perfwrap.journal_format import DESCRIBE, FIELD_SEPARATOR, SPANS, SUM
from perfwrap.sources.journal_file import (
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
from perfwrap.sources.span_counts import SpanCounts

LASTING = np.array(sorted(DESCRIBE[name] for name in ("THREAD", "FACT", "COVERAGE", "LOST", "END")))
"""Kinds that are kept however old they are: they say who somebody is and what is watched."""
MOST_LASTING = 20_000
"""Of those too only so many: a monitor writes some for each process that it sees."""
LOOK_SLOTS, BLOCK_SLOTS = 128, 1 << 18
"""How much is read to see whether there is news, and at once when there is much of it (8 MiB)."""
MOST_AGAIN = 4096
"""Slots that are looked at again because they may have changed."""
STEP_ENDS = tuple(SPANS[name] for name in ("OPTIMIZER", "BACKWARD", "FETCH"))
"""A window that begins behind one of these, the surest first, begins with a whole step."""


class JournalTail:
    """One journal as far as it was read; ``refresh`` reads on, ``journal`` gives what is kept."""

    def __init__(self, path: Path) -> None:
        """Read the header; Unreadable or OSError when that fails."""
        self.path = path
        self.header: Header = read_header(path)
        self.begin = 0
        """Spans and samples before this moment are not kept; 0 while everything is."""
        self._front = np.zeros(RESERVED, SLOT)
        self._next = RESERVED
        self._window = np.zeros(0, SLOT)
        self._numbers = np.zeros(0, np.int64)
        self._lasting = np.zeros(0, SLOT)
        self._pending: list[int] = []
        self._pieces: dict[int, dict[int, bytes]] = {}
        self._dropped = SpanCounts(self._loader_name)
        self._stretches = (0, 0)

    @property
    def ended(self) -> bool:
        """Whether the writer came to an orderly end: then there will be no more."""
        return any(bool((part["kind"] == DESCRIBE["END"]).any()) for part in (self._front, self._lasting))

    @property
    def role(self) -> str:
        """What the writer said that it is; ``main`` as long as it has not."""
        told = np.concatenate([self._front, self._lasting])
        for fact in told[told["kind"] == DESCRIBE["FACT"]]:
            if self._text(int(fact["name"])) == "role":
                return self._text(int(fact["value"])) or "main"
        return "main"

    @property
    def slots(self) -> int:
        """How many slots were read."""
        return self._next

    def refresh(self, most: int) -> bool:
        """Read what is new, keeping about ``most`` recent records; say whether there was anything.

        Raises OSError when the file is gone.
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
        """Return what is kept of the journal, from ``begin`` on, as an own copy.

        Of a writer that is ``alive`` nobody can ask that it has said goodbye: it counts as ended here.
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
        """Return how many spans of each kind lie before ``begin`` or are not kept any more."""
        return self._dropped.and_also(self._window[self._window["start"] < begin]).kinds

    def loaders(self) -> dict[str, tuple[int, int, int | None]]:
        """Return of each loader its iterations, the batches of the present one, and those of the one before."""
        counts = self._dropped.and_also(self._window)
        return {
            name: (started, counts.batches[name], counts.whole.get(name) or None)
            for name, started in counts.starts.items()
        }

    def _read_again(self, file: int) -> bool:
        """Read again what may have changed; say whether anything had."""
        changed = False
        still = []
        for number in self._pending:
            found = _read(file, number, 1)
            if found.size and found["kind"][0]:
                self._take(found.copy(), np.array([number]))
                changed = True
            else:
                still.append(number)
        self._pending = still[-MOST_AGAIN:]
        open_sums = np.flatnonzero(self._is_open(self._window))[-MOST_AGAIN:]
        for place in open_sums.tolist():
            found = _read(file, int(self._numbers[place]), 1)
            if found.size and found[0] != self._window[place]:
                self._window[place] = found[0]
                changed = True
        return changed

    def _take(self, slots: Records, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        """Keep new slots, each where it belongs."""
        kinds = slots["kind"]
        self._pending += numbers[kinds == 0].tolist()
        self._gather(slots)
        is_lasting = np.isin(kinds, LASTING)
        if is_lasting.any():
            self._lasting = np.concatenate([self._lasting, slots[is_lasting]])[-MOST_LASTING:]
        stays = ~is_lasting & np.isin(kinds, KINDS) & (kinds != DESCRIBE["TEXT"])
        self._window = np.concatenate([self._window, slots[stays]])
        self._numbers = np.concatenate([self._numbers, numbers[stays]])
        begun = np.sort(slots["start"][kinds == DESCRIBE["THIN"]])[-2:].tolist()
        older, newer = sorted([*self._stretches, *begun])[-2:]
        self._stretches = older, newer

    def _text(self, number: int) -> str:
        """Return a text as far as it was read."""
        return join_text(self._pieces[number]) if number in self._pieces else ""

    def _loader_name(self, number: int) -> str:
        """Return the first field of a label: ``loader/1``."""
        return self._text(number).partition(FIELD_SEPARATOR)[0]

    def _gather(self, slots: Records) -> None:
        """Keep the texts among the slots."""
        gather_texts(slots[slots["kind"] == DESCRIBE["TEXT"]], self._pieces)

    def _is_open(self, records: Records) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Say which records are sums that may still be added to: of this stretch and of the one before it."""
        return np.asarray((records["kind"] & SUM != 0) & (records["start"] >= self._stretches[0]))

    def _trim(self, most: int) -> None:
        """Let go of the oldest records once there are twice as many as are wanted."""
        if self._window.size <= 2 * most:
            return
        is_old = np.arange(self._window.size) < self._window.size - most
        is_old &= ~self._is_open(self._window)
        self._dropped.add(self._window[is_old])
        self._window, self._numbers = self._window[~is_old], self._numbers[~is_old]
        self.begin = max(self.begin, _first_whole_step(self._window))


def _read(file: int, slot: int, count: int) -> Records:
    """Return up to so many slots from a slot on, a last one that is cut short left out."""
    offset = (1 + slot) * SLOT.itemsize
    raw = os.pread(file, count * SLOT.itemsize, offset)
    return np.array(np.frombuffer(raw, SLOT, count=len(raw) // SLOT.itemsize))


def _first_whole_step(window: Records) -> int:
    """Return from when on the window holds whole steps: a stretch with detail begins or a step has ended."""
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
    """Return what says that a writer has ended; at no moment, so that it moves nothing."""
    record = np.zeros(1, SLOT)
    record["kind"] = DESCRIBE["END"]
    return record
