"""Reads the text of tables that command-line tools print: encodings, other lines before the header, units."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

from perfwrap.errors import PerfwrapError
from perfwrap.private_files import read_plain

LARGEST_FILE = 1 << 30
"""Bytes; such tables have some megabytes."""
LONGEST_FIELD = 1 << 24
"""Characters; names of C++ templates are longer than the csv module's default limit."""
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
SECONDS = {"n": 1, "u": 1_000, "m": 1_000_000, "": 1_000_000_000}
"""Nanoseconds in a second by its prefix."""


def decoded(data: bytes) -> str:
    """Return text in UTF-8, or in UTF-16 as PowerShell's redirection writes it."""
    encoding = "utf-16" if data.startswith(UTF16) else "utf-8-sig"
    return data.decode(encoding, "replace")


def read_text(path: Path) -> str:
    """Return the text of a file; PerfwrapError if it cannot be read or is too large."""
    return decoded(read_content(path))


def read_content(path: Path) -> bytes:
    """Return the bytes of a file; PerfwrapError if it cannot be read or is too large."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise PerfwrapError(f"{path} is too large for a table.", "Check that it is the right file.")
        return read_plain(path, LARGEST_FILE)
    except OSError as error:
        raise PerfwrapError(
            f"{path} cannot be read: {error.strerror or error}.", "Give a file that you can read."
        ) from error


def rows(text: str) -> Iterator[list[str]]:
    """Return the rows of a table, each a list of cells, up to the first invalid row."""
    csv.field_size_limit(LONGEST_FIELD)
    try:
        yield from csv.reader(io.StringIO(text.replace("\0", ""), newline=""))
    except csv.Error:
        return


def number(text: str | None) -> float | None:
    """Return a number with or without commas between thousands; None for other texts such as ``n/a``."""
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def nanoseconds_in(unit: str) -> int | None:
    """Return the nanoseconds of a unit of time as tools write it: ns, usecond, ms, s; None for others."""
    found = re.fullmatch(r"(n|u|µ|μ|m|)(?:s|sec|seconds?)", unit.strip().lower())
    return SECONDS["u" if found[1] in "µμ" and found[1] else found[1]] if found else None
