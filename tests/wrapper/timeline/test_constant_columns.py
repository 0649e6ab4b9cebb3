"""Columns with one value in all rows are the same table to everybody who reads it."""

from __future__ import annotations

import polars as pl
import pytest
from perfwrap.timeline.constant_columns import without_copies


@pytest.mark.parametrize(
    "source",
    [["nsys", "nsys", "nsys"], ["nsys", None, "nsys"], ["nsys", "recorder", "nsys"], [None, None, None]],
)
def test_a_table_stays_equal_also_after_it_was_filtered_joined_and_stored(
    source: list[str | None],
) -> None:
    plain = pl.DataFrame(
        {"start": [1, 2, 3], "file": [None, None, None], "name": ["a", "a", "a"], "source": source},
        schema={"start": pl.Int64, "file": pl.String, "name": pl.String, "source": pl.String},
    )
    lean = without_copies(plain)
    assert lean.schema == plain.schema
    assert lean.equals(plain)
    assert lean.filter(pl.col("start") > 1).equals(plain.filter(pl.col("start") > 1))
    assert pl.concat([lean, plain]).equals(pl.concat([plain, plain]))
    assert lean.group_by("source").len().sort("source").equals(plain.group_by("source").len().sort("source"))


def test_a_table_without_rows_stays_as_it_is() -> None:
    empty = pl.DataFrame(schema={"start": pl.Int64, "source": pl.String})
    assert without_copies(empty).equals(empty)
