"""Detects tables made to exhaust memory: a few kilobytes of Parquet can contain a billion equal rows."""

from __future__ import annotations

from pathlib import Path

import polars as pl

FREE_ROWS = 4_000_000
"""Number of rows that any file may have."""
MAX_ROWS_PER_BYTE = 20
"""Maximum for larger files; times in perfwrap's own files take at least one byte per row."""


def is_inflated(path: Path) -> bool:
    """Return whether a file has far more rows than its size allows; reads no contents.

    The caller handles the exceptions of polars for a damaged file.
    """
    try:
        rows = pl.scan_parquet(path).select(pl.len()).collect().item()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return False
    return int(rows) > max(FREE_ROWS, MAX_ROWS_PER_BYTE * path.stat().st_size)
