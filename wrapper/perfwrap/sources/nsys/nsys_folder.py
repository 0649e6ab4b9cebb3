"""Reads an nsys export to a folder of Parquet files, one for each table.

The tables and columns are those of the SQLite export; integers may be unsigned. Seen: exports of nsys 2023.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from perfwrap.sources.nsys.nsys_tables import NsysTables, Only
from perfwrap.sources.table_folders import SUFFIX

ROWS_AT_ONCE = 1 << 20
MIN_ROW_BYTES = 4
FREE_ROWS = 1 << 16
"""Rows that any file may have; with more, each needs MIN_ROW_BYTES. In real exports it has 20: a small file with many
rows is not a recording, but made to exhaust memory."""


class NsysFolder(NsysTables):
    """An export to a folder."""

    def __init__(self, path: Path) -> None:
        """Find the tables and their columns."""
        self._path = path
        columns: dict[str, frozenset[str]] = {}
        problems = []
        for file in sorted(path.glob(f"*{SUFFIX}")):
            try:
                columns[file.stem] = frozenset(pl.read_parquet_schema(file))
            except (PolarsError, OSError) as error:
                problems.append(f"{file.stem} cannot be read: {_first_line(error)}")
        super().__init__(columns)
        self.problems += problems

    def _rows(
        self,
        table: str,
        schema: dict[str, pl.DataType],
        alike: dict[str, list[str]],
        only: Only,
        part: tuple[int, int] | None,
    ) -> Iterator[pl.DataFrame]:
        """Return the rows in pieces: none of a damaged file."""
        wanted = [pl.col(name).is_in(values) for name, values in only.items()]
        if part:
            wanted.append(pl.col("start").cast(pl.Int64, strict=False).is_between(*part, closed="left"))
        chosen = [_first(alike[name], kind).alias(name) for name, kind in schema.items()]
        try:
            if self._height(table) is None:
                return
            found = self._scan(table).filter(*wanted).select(chosen).collect()
        except (PolarsError, OSError) as error:
            self.problems.append(f"{table} cannot be read: {_first_line(error)}")
            return
        yield from found.iter_slices(ROWS_AT_ONCE)

    def some_starts(self, table: str, most: int) -> tuple[int, list[int]]:
        """Return how many rows a table has, and when up to ``most`` of them start, evenly chosen."""
        if "start" not in self.columns.get(table, ()):
            return 0, []
        start = pl.col("start").cast(pl.Int64, strict=False)
        found: list[int] = []
        try:
            height = self._height(table) or 0
            every = -(-height // most) or 1
            # As many rows at once as have whole strides.
            step = max(1, ROWS_AT_ONCE // every) * every
            for first in range(0, height, step):
                rows = self._scan(table).select(start).slice(first, step).collect()
                found += rows["start"].gather_every(every).drop_nulls().to_list()
        except (PolarsError, OSError):
            return 0, []
        return height, found

    def _height(self, table: str) -> int | None:
        """Return how many rows a table has; None, and a problem, if its file is too small for them."""
        height: int = self._scan(table).select(pl.len()).collect().item()
        size = self._file(table).stat().st_size
        if height > max(FREE_ROWS, size // MIN_ROW_BYTES):
            self.problems.append(f"{table} repeats the same rows, so it was not read")
            return None
        return height

    def _scan(self, table: str) -> pl.LazyFrame:
        """Return the rows of a table."""
        return pl.scan_parquet(self._file(table), glob=False)

    def _file(self, table: str) -> Path:
        """Return the file of a table."""
        return self._path / f"{table}{SUFFIX}"


def _first(names: list[str], kind: pl.DataType) -> pl.Expr:
    """Return the first value of some columns, null without columns."""
    return pl.coalesce(pl.lit(None, kind), *(pl.col(name).cast(kind, strict=False) for name in names))


def _first_line(error: Exception) -> str:
    """Return what an exception says, without the plan that polars adds."""
    return str(error).partition("\n")[0]
