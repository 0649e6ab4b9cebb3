"""Reads what a journal says in words: its facts and its coverage; the recorder's ``journal_format.py`` specifies it.

The sources read journals whole, into tables; this one works where their libraries are missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfwrap.journal_format import DESCRIBE, HEADER, MAGIC, RECORD

PIECE_BYTES = 24


@dataclass(frozen=True)
class Words:
    """Facts by key, and (what, duration, note) of each coverage record; 1 ns means "not watched"."""

    pid: int
    facts: dict[str, str]
    coverage: list[tuple[str, int, str]]

    def notes(self, what: str) -> list[str]:
        """Return why something is not or was no longer watched."""
        return [note for name, _, note in self.coverage if name == what and note]


def read_words(path: Path) -> Words:
    """Return the words of a journal, as far as they were written."""
    data = path.read_bytes()
    data = data[: len(data) // RECORD.size * RECORD.size]
    if not data.startswith(MAGIC):
        return Words(0, {}, [])
    texts: dict[int, dict[int, bytes]] = {0: {0: b""}}
    facts, coverage = [], []
    for place, record in enumerate(RECORD.iter_unpack(data[HEADER.size :]), 1):
        _, duration, value, name, piece, kind = record
        if kind == DESCRIBE["TEXT"]:
            texts.setdefault(name, {})[piece] = data[place * RECORD.size :][:PIECE_BYTES]
        elif kind == DESCRIBE["FACT"]:
            facts.append((name, value))
        elif kind == DESCRIBE["COVERAGE"]:
            coverage.append((name, duration, value))
    read = {number: _joined(pieces) for number, pieces in texts.items()}
    return Words(
        HEADER.unpack_from(data)[2],
        {read.get(key, ""): read.get(value, "") for key, value in facts},
        [(read.get(what, ""), duration, read.get(note, "")) for what, duration, note in coverage],
    )


def _joined(pieces: dict[int, bytes]) -> str:
    return b"".join(pieces[at] for at in sorted(pieces)).rstrip(b"\0").decode("utf-8", "replace")
