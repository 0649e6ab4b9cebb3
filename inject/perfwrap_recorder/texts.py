"""The texts of a process: each is known by a number, and there is an end to how many there can be."""

from __future__ import annotations

from itertools import count
from struct import Struct

MAXIMUM_BYTES = 4080
"""Where a text is cut."""

MAXIMUM_TEXTS = 1 << 15

BUDGET_SHARE = 8
"""One part in so many of a journal's slots is what texts may take."""

PIECE = Struct("<qqq")


def pieces_of(value):
    """Yield the pieces of a text, each as three integers."""
    data = value.encode("utf-8", "replace")[:MAXIMUM_BYTES]
    for begin in range(0, len(data) or 1, PIECE.size):
        yield PIECE.unpack(data[begin : begin + PIECE.size].ljust(PIECE.size, b"\0"))


JOURNAL, SILENT = "journal", "nothing was written any more: the disk took no more"
"""What is said when there is no room must be there before."""


class Texts:
    """The numbers of texts; those that come when there are too many share ``other``."""

    def __init__(self):
        self.numbers = {"(other)": 1, "records": 2, "texts": 3, JOURNAL: 4, SILENT: 5}
        self.other = 1
        self.lost = 0
        self._next = count(6).__next__
        self._slots = 0

    def add(self, value, journal_slots):
        """Return a text's number, and whether it has to be written."""
        needed = 1 + min(len(value), MAXIMUM_BYTES) // PIECE.size
        if len(self.numbers) >= MAXIMUM_TEXTS or self._slots + needed > journal_slots // BUDGET_SHARE:
            self.lost += 1
            return self.other, False
        mine = self._next()
        number = self.numbers.setdefault(value, mine)
        self._slots += needed if number == mine else 0
        return number, number == mine
