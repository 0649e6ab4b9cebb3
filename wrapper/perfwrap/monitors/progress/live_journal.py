"""Reads calls that have not returned, and whether the process has ended, from a journal that is being written.

The recorder's ``journal_format.py`` specifies the format.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from perfwrap.journal_format import DESCRIBE, FIELD_SEPARATOR, RECORD

SLOT = RECORD.size
OPEN_SLOTS = 5, 6
"""Where the recorder keeps calls that have not returned."""
OPEN, END = DESCRIBE["OPEN"], DESCRIBE["END"]
END_SLOT = 1


class Call(NamedTuple):
    """A call that has not returned."""

    kind: int
    """That of its span."""
    start_ns: int
    name: int
    """The id of its label."""


class Place(NamedTuple):
    """The content of a label: a call, and the line of the user that made it."""

    name: str
    file: str = ""
    line: int = 0
    function: str = ""


def read_open_calls(path: Path) -> list[Call]:
    """Return the calls that the process is inside."""
    with open(path, "rb") as file:
        data = file.read((OPEN_SLOTS[-1] + 1) * SLOT)
    records = [RECORD.unpack_from(data, slot * SLOT) for slot in OPEN_SLOTS if (slot + 1) * SLOT <= len(data)]
    return [
        Call(value, start, name) for start, _, value, name, _, kind in records if kind == OPEN and start > 0
    ]


def has_ended(path: Path) -> bool:
    """Return whether the process has ended in an orderly way."""
    with open(path, "rb") as file:
        data = os.pread(file.fileno(), SLOT, END_SLOT * SLOT)
    return len(data) == SLOT and RECORD.unpack(data)[5] == END


def parse_label(text: str) -> Place:
    """Return the content of a label."""
    fields = [*text.split(FIELD_SEPARATOR), "", "", ""][:4]
    return Place(fields[0], fields[1], int(fields[2]) if fields[2].isdecimal() else 0, fields[3])
