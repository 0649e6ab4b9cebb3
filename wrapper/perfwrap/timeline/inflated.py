"""Tells tables that somebody made to fill a memory: a few kilobytes of Parquet hold a thousand million equal rows."""

from __future__ import annotations

from pathlib import Path

import polars as pl

FREE_ROWS = 4_000_000
"""So many any file may have."""
MOST_ROWS_PER_BYTE = 20
"""Of larger ones; what we write has times, which take a byte and more of each row."""


def is_inflated(path: Path) -> bool:
    """Say whether a file has far more rows than its size allows; of its contents nothing is read.

    What polars raises for a damaged file is left to whoever reads it.
    """
    try:
        rows = pl.scan_parquet(path).select(pl.len()).collect().item()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return False
    return int(rows) > max(FREE_ROWS, MOST_ROWS_PER_BYTE * path.stat().st_size)
