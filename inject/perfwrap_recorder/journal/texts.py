"""The texts of a process: each has a number, and their number is limited."""

from __future__ import annotations

from itertools import count
from struct import Struct

MAX_BYTES = 4080
"""Longer texts are cut."""

MAX_TEXTS = 1 << 15

BUDGET_SHARE = 8
"""Texts may use 1/BUDGET_SHARE of a journal's slots."""

PIECE = Struct("<qqq")


def pieces_of(value):
    """Yield the pieces of a text, each as three integers."""
    data = value.encode("utf-8", "replace")[:MAX_BYTES]
    for begin in range(0, len(data) or 1, PIECE.size):
        yield PIECE.unpack(data[begin : begin + PIECE.size].ljust(PIECE.size, b"\0"))


JOURNAL, SILENT = "journal", "nothing was written any more: the disk took no more"
"""These must be in the file before there is no room left."""


class Texts:
    """The numbers of texts; those beyond the limit share ``other``."""

    def __init__(self):
        self.numbers = {"(other)": 1, "records": 2, "texts": 3, JOURNAL: 4, SILENT: 5}
        self.other = 1
        self.lost = 0
        self._next = count(6).__next__
        self._slots = 0

    def add(self, value, journal_slots):
        """Return a text's number, and whether it must be written."""
        needed = 1 + min(len(value), MAX_BYTES) // PIECE.size
        if len(self.numbers) >= MAX_TEXTS or self._slots + needed > journal_slots // BUDGET_SHARE:
            self.lost += 1
            return self.other, False
        mine = self._next()
        number = self.numbers.setdefault(value, mine)
        self._slots += needed if number == mine else 0
        return number, number == mine
