"""Reads facts, coverage and texts of a journal; the recorder's ``journal_format.py`` specifies them.

For processes without polars and for journals that are still being written. Expensive for a long journal: the sources
read whole journals into tables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from perfwrap.journal_format import DESCRIBE, HEADER, MAGIC, PIECE_BYTES, RECORD

TEXT, FACT, COVERAGE = (DESCRIBE[name] for name in ("TEXT", "FACT", "COVERAGE"))
DESCRIBING = re.compile(bytes((ord("["), TEXT, FACT, COVERAGE, ord("]"))), re.DOTALL)
KIND = 30
"""The byte of a record that contains these kinds."""
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Words:
    """Facts by key, and (what, duration, note) of each coverage record; 1 ns means "not recorded"."""

    pid: int
    facts: dict[str, str]
    coverage: list[tuple[str, int, str]]
    pieces: dict[int, dict[int, bytes]]
    """The texts: id -> place -> piece."""

    def notes(self, what: str) -> list[str]:
        """Return why something is not recorded, or no longer was."""
        return [note for name, _, note in self.coverage if name == what and note]

    def text(self, number: int) -> str:
        """Return the text with this id, as far as it has been written."""
        return _joined(self.pieces, number)


def read_words(path: Path, most_bytes: int = 0) -> Words:
    """Return the words of a journal, as far as they have been written; with ``most_bytes``, of its first bytes only."""
    pieces: dict[int, dict[int, bytes]] = {}
    facts, coverage = [], []
    with open(path, "rb") as file:
        head = file.read(HEADER.size)
        if len(head) < HEADER.size or not head.startswith(MAGIC):
            return Words(0, {}, [], {})
        left = (most_bytes or path.stat().st_size) - HEADER.size
        while left > 0 and len(data := file.read(min(left, BLOCK_BYTES))) >= RECORD.size:
            left -= len(data)
            for found in DESCRIBING.finditer(data[KIND :: RECORD.size]):
                record = data[found.start() * RECORD.size : (found.start() + 1) * RECORD.size]
                if len(record) < RECORD.size:
                    break
                _, duration, value, name, piece, kind = RECORD.unpack(record)
                if kind == TEXT:
                    pieces.setdefault(name, {})[piece] = record[:PIECE_BYTES]
                elif kind == FACT:
                    facts.append((name, value))
                elif kind == COVERAGE:
                    coverage.append((name, duration, value))
    return Words(
        HEADER.unpack(head)[2],
        {_joined(pieces, key): _joined(pieces, value) for key, value in facts},
        [(_joined(pieces, what), duration, _joined(pieces, note)) for what, duration, note in coverage],
        pieces,
    )


def _joined(pieces: dict[int, dict[int, bytes]], number: int) -> str:
    found = pieces.get(number, {})
    return b"".join(found[place] for place in sorted(found)).rstrip(b"\0").decode("utf-8", "replace")
