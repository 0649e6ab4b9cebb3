"""Read the words of a journal that is still being written: facts, labels, and calls that have not returned.

Dear for a long one, so only done when something is to be told. The format is specified in the recorder's
``journal_format.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from perfwrap.journal_format import DESCRIBE, FIELD_SEPARATOR, RECORD

SLOT = RECORD.size
BLOCK_BYTES = 1 << 20
OPEN_SLOTS = 5, 6
"""Where the recorder keeps calls that have not returned."""
PIECE_BYTES = 24
TEXT, FACT, OPEN, END = (DESCRIBE[name] for name in ("TEXT", "FACT", "OPEN", "END"))
DESCRIBING = re.compile(bytes((ord("["), TEXT, FACT, ord("]"))), re.DOTALL)
END_SLOT = 1
KIND = 30


class Call(NamedTuple):
    """A call that has not returned."""

    kind: int
    """That of its span."""
    start_ns: int
    name: int
    """The id of its label."""


class Words(NamedTuple):
    """What a journal says in words."""

    texts: dict[int, str]
    facts: dict[str, str]


class Place(NamedTuple):
    """What a label names: a call, and the user's line that made it."""

    name: str
    file: str = ""
    line: int = 0
    function: str = ""


def read_open_calls(path: Path) -> list[Call]:
    """Return the calls that the process is inside of."""
    with open(path, "rb") as file:
        data = file.read((OPEN_SLOTS[-1] + 1) * SLOT)
    records = [RECORD.unpack_from(data, slot * SLOT) for slot in OPEN_SLOTS if (slot + 1) * SLOT <= len(data)]
    return [
        Call(value, start, name) for start, _, value, name, _, kind in records if kind == OPEN and start > 0
    ]


def has_ended(path: Path) -> bool:
    """Say whether the process has come to its orderly end."""
    with open(path, "rb") as file:
        data = os.pread(file.fileno(), SLOT, END_SLOT * SLOT)
    return len(data) == SLOT and RECORD.unpack(data)[5] == END


def read_words(path: Path, wanted: Collection[int] = (), most_bytes: int = 0) -> Words:
    """Return all facts and the texts of these ids; of the file's first bytes only where ``most_bytes`` says so."""
    pieces: dict[int, dict[int, bytes]] = {}
    told: list[tuple[int, int]] = []
    with open(path, "rb") as file:
        left = most_bytes or path.stat().st_size
        while left > 0 and len(data := file.read(min(left, BLOCK_BYTES))) >= SLOT:
            left -= len(data)
            for found in DESCRIBING.finditer(data[KIND::SLOT]):
                slot = data[found.start() * SLOT : (found.start() + 1) * SLOT]
                if len(slot) < SLOT:
                    break
                _, _, value, name, piece, kind = RECORD.unpack(slot)
                if kind == TEXT:
                    pieces.setdefault(name, {})[piece] = slot[:PIECE_BYTES]
                elif kind == FACT:
                    told.append((name, value))
    facts = {_joined(pieces, key): _joined(pieces, value) for key, value in told}
    return Words({number: _joined(pieces, number) for number in wanted}, facts)


def parse_label(text: str) -> Place:
    """Return what a label names."""
    fields = [*text.split(FIELD_SEPARATOR), "", "", ""][:4]
    return Place(fields[0], fields[1], int(fields[2]) if fields[2].isdigit() else 0, fields[3])


def _joined(pieces: dict[int, dict[int, bytes]], number: int) -> str:
    """Return a text of its pieces."""
    found = pieces.get(number, {})
    return b"".join(found[piece] for piece in sorted(found)).rstrip(b"\0").decode("utf-8", "replace")
