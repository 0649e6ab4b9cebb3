"""What reading a damaged file may raise that its reader did not foresee: it costs that file, never the others."""

from __future__ import annotations

from polars.exceptions import PolarsError

UNFORESEEN = (
    *(OSError, EOFError, MemoryError, RecursionError),
    *(ValueError, TypeError, ArithmeticError, LookupError, AttributeError),
    PolarsError,
)
"""What Python, numpy and polars raise where a value is missing, of another kind, or out of every range."""
