"""Columns with the same value in every row take no memory: most of a recording's spans have no file and one source."""

from __future__ import annotations

import polars as pl

CONSTANT = ("source",)
"""Columns that may have one value in all rows; the others may have none in all rows."""


def without_copies(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the table with one value in place of each column that has only that one."""
    if frame.is_empty():
        return frame
    columns = []
    for name, kind in frame.schema.items():
        column = frame[name]
        if column.null_count() == frame.height:
            columns.append(pl.lit(None, kind).alias(name))
        elif name in CONSTANT and (column == column[0]).all() and not column.has_nulls():
            columns.append(pl.lit(column[0], kind).alias(name))
        else:
            columns.append(pl.col(name))
    return frame.with_columns(columns)
