"""A line of the user's program, as in the labels of the journal."""

from __future__ import annotations

from msgspec import Struct

from perfwrap.journal_format import FIELD_SEPARATOR


class Line(Struct, frozen=True):
    """File, line number and function."""

    file: str
    line: int
    function: str = ""


def line_of(file: str | None, line: int | None, function: str | None) -> Line | None:
    """Return the line, or None if the recorder did not know it."""
    return Line(file, line, function or "") if file and line is not None else None


def parse_line(text: str | None) -> Line | None:
    """Return the line from a fact of the form file U+001F line U+001F function."""
    fields = (text or "").split(FIELD_SEPARATOR)
    if len(fields) < 2 or not fields[0] or not fields[1].isdecimal():
        return None
    return Line(fields[0], int(fields[1]), fields[2] if len(fields) > 2 else "")


def parse_key(key: str) -> Line | None:
    """Return the line from the key of a loop event: ``backward:FILE:LINE``."""
    fields = key.split(":")
    if len(fields) < 3 or not fields[-1].isdecimal():
        return None
    return Line(":".join(fields[1:-1]), int(fields[-1]))
