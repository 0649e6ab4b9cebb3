"""The tables of an nsys export, read by their names and those of their columns, whatever the files are.

Tables and columns differ between versions and captures: a table without events is missing, and people add their own
columns. Missing columns are null, and rows after damage are skipped. Nothing in an export can write or run anything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

Only = Mapping[str, tuple[int | str, ...]]
"""The wanted values of some columns."""


class NsysTables(ABC):
    """One export, open for reading; ``problems`` are sentences about what could not be read."""

    def __init__(self, columns: dict[str, frozenset[str]]) -> None:
        """Take the names of the columns of each table."""
        self.columns = columns
        self.part: tuple[int, int] | None = None
        """The start times of the events that are read, from the first to before the second; None for all."""
        self.problems: list[str] = []
        self._strings: dict[str, tuple[np.ndarray[tuple[int], np.dtype[np.int64]], pl.Series]] = {}

    def read(
        self,
        table: str,
        integers: tuple[str, ...] = (),
        texts: tuple[str, ...] = (),
        only: Only | None = None,
    ) -> pl.DataFrame:
        """Return these columns of a table; missing columns are null, and a missing table has no rows."""
        return pl.concat(self.pieces(table, integers, texts, only))

    def pieces(
        self,
        table: str,
        integers: tuple[str, ...] = (),
        texts: tuple[str, ...] = (),
        only: Only | None = None,
        instead: Mapping[str, tuple[str, ...]] | None = None,
    ) -> Iterator[pl.DataFrame]:
        """Return the result of ``read`` in pieces; of a table without rows, one empty piece.

        Of rows with a start, only those of ``part`` are returned. ``only`` has the wanted values of columns: no row has
        those of a missing column. ``instead`` has, for an integer column, the columns whose value is taken where it has
        none.
        """
        schema: dict[str, pl.DataType] = {
            **dict.fromkeys(integers, pl.Int64()),
            **dict.fromkeys(texts, pl.String()),
        }
        known = self.columns.get(table)
        is_empty = True
        if known is not None and known.issuperset(only or ()):
            alike = {
                name: [each for each in (name, *(instead or {}).get(name, ())) if each in known]
                for name in schema
            }
            part = self.part if "start" in schema and "start" in known else None
            for piece in self._rows(table, schema, alike, only or {}, part):
                is_empty = False
                yield piece
        if is_empty:
            yield pl.DataFrame(schema=schema)

    @abstractmethod
    def _rows(
        self,
        table: str,
        schema: dict[str, pl.DataType],
        alike: dict[str, list[str]],
        only: Only,
        part: tuple[int, int] | None,
    ) -> Iterator[pl.DataFrame]:
        """Return the rows of a table that exists, in pieces with these columns, up to damaged ones.

        A column has the first value of those of ``alike``, which exist; with none, it is null. Only rows with the
        values of ``only``, and a start in ``part``, are returned.
        """

    @abstractmethod
    def some_starts(self, table: str, most: int) -> tuple[int, list[int]]:
        """Return about how many rows a table has, and when up to ``most`` of them start, evenly chosen.

        Both are 0 and empty if the table has no column ``start`` or is damaged.
        """

    def named(self, table: str, key: str = "name", value: str = "value") -> dict[str, str]:
        """Return the names and values of a table."""
        rows = self.read(table, texts=(key, value)).drop_nulls()
        return dict(zip(rows[key].to_list(), rows[value].to_list(), strict=True))

    def numbers(self, tables: tuple[str, ...], known: Mapping[str, int]) -> dict[str, int]:
        """Return the number of each name of an enumeration: from the file, else from ``known``."""
        for table in tables:
            rows = self.read(table, integers=("id",), texts=("name",)).drop_nulls()
            if rows.height:
                return dict(zip(rows["name"].to_list(), rows["id"].to_list(), strict=True))
        return dict(known)

    def strings(self, ids: pl.Series, without: str = "") -> pl.Series:
        """Return the text of each id, null for an id without one; ``without`` is a pattern that is cut out of it."""
        if without not in self._strings:
            table = self.read("StringIds", integers=("id",), texts=("value",))
            table = table.drop_nulls("id").unique("id").sort("id")
            values = pl.concat([table["value"], pl.Series("value", [None], dtype=pl.String)])
            # Once for each text, not for each event: then the events also share its memory.
            self._strings[without] = (
                table["id"].to_numpy(),
                values.str.replace(without, "") if without else values,
            )
        known, values = self._strings[without]
        wanted = ids.fill_null(-1).to_numpy()
        places = np.searchsorted(known, wanted)
        if known.size:
            places[known[np.minimum(places, known.size - 1)] != wanted] = known.size
        return values.gather(places.astype(np.uint32)).alias(ids.name)
