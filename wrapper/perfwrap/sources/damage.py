"""Exceptions that a damaged file may cause in its reader: only that file is skipped."""

from __future__ import annotations

from polars.exceptions import PolarsError

UNFORESEEN = (
    *(OSError, EOFError, MemoryError, RecursionError),
    *(ValueError, TypeError, ArithmeticError, LookupError, AttributeError),
    PolarsError,
)
"""Exceptions of Python, numpy and polars for a value that is missing, of another type, or out of range."""
