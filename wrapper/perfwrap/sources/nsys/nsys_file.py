"""Opens an nsys export to SQLite safely, decompressed if necessary, and reads its tables."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import IO
from urllib.parse import quote

import polars as pl
from polars.exceptions import PolarsError

from perfwrap.errors import PerfwrapError
from perfwrap.sources.nsys.nsys_tables import NsysTables, Only
from perfwrap.sources.unpacked import is_bomb

SQLITE_MAGIC = b"SQLite format 3\0"
GZIP_MAGIC = b"\x1f\x8b"
LARGEST_UNPACKED = 16 << 30
"""Bytes; a small gzip file can decompress to any size."""
UNPACK_BYTES = 1 << 20
ROWS_AT_ONCE = 1 << 14
"""Rows that are fetched at once: Python rows need ten times the memory of columns."""
ROWS_OF_PIECE = 1 << 16
"""Rows of a piece: each costs the same few milliseconds, whatever its size."""
MIN_ROW_BYTES = 4
"""Minimum bytes of a row in the file; a damaged or hostile file may refer to the same page a million times."""
LARGEST_VALUE = 64 << 20
"""Maximum bytes of one text, including texts that SQLite computes."""


class NsysFile(NsysTables):
    """An export to SQLite."""

    def __init__(self, connection: sqlite3.Connection, size: int) -> None:
        """Find the tables and their columns; ``size`` is the file's, in bytes."""
        self._connection = connection
        self._most_rows = size // MIN_ROW_BYTES
        columns: dict[str, frozenset[str]] = {}
        # Only real tables: a view or a virtual table could run code.
        listed = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        for (name,) in connection.execute(listed).fetchall():
            found = connection.execute(f"PRAGMA table_info({_quoted(name)})").fetchall()
            columns[name] = frozenset(str(row[1]) for row in found)
        super().__init__(columns)
        # polars decodes them faster.
        connection.text_factory = bytes

    def _rows(
        self,
        table: str,
        schema: dict[str, pl.DataType],
        alike: dict[str, list[str]],
        only: Only,
        part: tuple[int, int] | None,
    ) -> Iterator[pl.DataFrame]:
        """Return the rows in pieces, up to damaged ones."""
        chosen = ", ".join(
            _cast(names, "INTEGER" if schema[name] == pl.Int64() else "TEXT") for name, names in alike.items()
        )
        wanted = [f"{_quoted(name)} IN ({', '.join('?' * len(values))})" for name, values in only.items()]
        values = list(chain.from_iterable(only.values()))
        if part:
            wanted.append('"start" >= ? AND "start" < ?')
            values += part
        condition = f" WHERE {' AND '.join(wanted)}" if wanted else ""
        query = f"SELECT {chosen} FROM {_quoted(table)}{condition}"  # nosec B608 # names are quoted
        frames: list[pl.DataFrame] = []
        for rows in self._fetched(table, query, values):
            frames.append(_frame(rows, schema))
            if len(frames) * ROWS_AT_ONCE >= ROWS_OF_PIECE:
                yield pl.concat(frames, rechunk=True)
                frames = []
        if frames:
            yield pl.concat(frames, rechunk=True)

    def _fetched(self, table: str, query: str, values: list[int | str]) -> Iterator[list[tuple[object, ...]]]:
        """Return the rows, many at a time, up to damaged ones."""
        rows: list[tuple[object, ...]] = []
        left = self._most_rows
        try:
            found = self._connection.execute(query, values)
            while True:
                # Unlike fetchmany, this keeps the rows before a damaged one.
                rows.extend(islice(found, ROWS_AT_ONCE))
                left -= len(rows)
                if left < 0:
                    self.problems.append(f"{table} repeats the same rows, so it was not read completely")
                    break
                if len(rows) < ROWS_AT_ONCE:
                    break
                yield rows
                rows = []
        except sqlite3.Error as error:
            self.problems.append(f"{table} cannot be read completely: {error}")
        if rows:
            yield rows

    def some_starts(self, table: str, most: int) -> tuple[int, list[int]]:
        """Return about how many rows a table has, and when up to ``most`` of them start, evenly chosen."""
        if "start" not in self.columns.get(table, ()):
            return 0, []
        found = []
        try:
            (last,) = self._connection.execute(f"SELECT max(rowid) FROM {_quoted(table)}").fetchone()  # nosec B608
            query = f'SELECT CAST("start" AS INTEGER) FROM {_quoted(table)} WHERE rowid = ?'  # nosec B608
            asked = min(most, last or 0)
            for number in range(asked):
                row = self._connection.execute(query, (1 + number * last // asked,)).fetchone()
                if row and row[0] is not None:
                    found.append(row[0])
        except sqlite3.Error:
            return 0, []
        return (last or 0) * len(found) // max(1, asked), found


@contextmanager
def opened(path: Path) -> Iterator[NsysFile]:
    """Open an export, if compressed as a decompressed temporary file; PerfwrapError if it is not an export."""
    with _unpacked(path) as plain:
        try:
            address = f"file:{quote(str(plain.resolve()))}?mode=ro&immutable=1"
            connection = sqlite3.connect(address, uri=True, check_same_thread=False)
            connection.text_factory = _text
            if sys.version_info >= (3, 11):
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)
        except sqlite3.Error as error:
            raise PerfwrapError(
                f"{path} cannot be opened: {error}",
                "Give a file that you can read, or export the report again.",
            ) from error
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            # SQLite refuses a truncated file, except with this option, which is meant for repairs.
            connection.execute("PRAGMA writable_schema = ON")
            file = NsysFile(connection, plain.stat().st_size)
        except sqlite3.Error as error:
            connection.close()
            raise PerfwrapError(
                f"{path} is damaged: {error}", "Export it again: nsys export --type sqlite REPORT.nsys-rep"
            ) from error
        try:
            yield file
        finally:
            connection.close()


def plain_head(head: bytes) -> bytes:
    """Return the beginning of a file's content, decompressed if necessary."""
    if not head.startswith(GZIP_MAGIC):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, max(len(head), 64))
    except zlib.error:
        return b""


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """Yield the path itself, or that of a decompressed temporary copy; PerfwrapError if that is not possible."""
    try:
        with path.open("rb") as file:
            packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    except OSError as error:
        raise PerfwrapError(
            f"{path} cannot be read: {error.strerror}.",
            "Give a file that you can read, or export the report again.",
        ) from error
    if not packed:
        yield path
        return
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as copy:
        try:
            _unpack(path, copy)
        except (OSError, EOFError, zlib.error) as error:
            # The part before the damage is a database without its last pages.
            if copy.tell() == 0:
                raise PerfwrapError(
                    f"{path} cannot be decompressed: {error}",
                    "Give a file that you can read, or export the report again.",
                ) from error
        copy.flush()
        yield Path(copy.name)


def _unpack(path: Path, to: IO[bytes]) -> None:
    """Decompress in pieces; PerfwrapError if the result is too large."""
    packed, size = path.stat().st_size, 0
    with gzip.open(path, "rb") as file:
        while piece := file.read1(UNPACK_BYTES):
            size += len(piece)
            if is_bomb(packed, size):
                raise PerfwrapError(
                    f"{path} decompresses to far more data than a recording has.",
                    "If it is a recording, decompress it with gunzip.",
                )
            if size > min(LARGEST_UNPACKED, shutil.disk_usage(tempfile.gettempdir()).free + size):
                raise PerfwrapError(
                    f"{path} is too large to be decompressed in {tempfile.gettempdir()}.",
                    "Decompress it with gunzip, or set TMPDIR to a folder with more space.",
                )
            to.write(piece)


def _cast(names: list[str], kind: str) -> str:
    """Return the SQL for the first value of some columns, NULL without columns."""
    cast = [f"CAST({_quoted(name)} AS {kind})" for name in names]
    return f"coalesce({', '.join(cast)})" if len(cast) > 1 else "".join(cast) or "NULL"


def _frame(rows: list[tuple[object, ...]], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    """Return rows as columns; at least one row."""
    cells = list(chain.from_iterable(rows))
    width = len(schema)
    return pl.DataFrame(
        {
            name: _texts(cells[place::width])
            if kind == pl.String()
            else pl.Series(cells[place::width], dtype=kind)
            for place, (name, kind) in enumerate(schema.items())
        }
    )


def _texts(values: list[object]) -> pl.Series:
    """Return encoded texts, which need not be UTF-8."""
    try:
        found: pl.Series = pl.Series(values, dtype=pl.Binary()).cast(pl.String())
        return found
    except PolarsError:
        return pl.Series(
            [_text(value) if isinstance(value, bytes) else None for value in values], dtype=pl.String()
        )


def _text(value: bytes) -> str:
    """Return a text of the file with what is not UTF-8 replaced."""
    return value.decode("utf-8", "replace")


def _quoted(name: str) -> str:
    """Return a name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'
