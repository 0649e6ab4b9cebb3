"""NaNs and infinities that the program read."""

from __future__ import annotations

import polars as pl

from perfwrap.measures.evidence import Evidence


def find_non_finite(evidence: Evidence) -> pl.DataFrame:
    """Return NaNs and infinities that the program read, in order: the rows of ``marks`` named non_finite."""
    return evidence.timeline.marks.filter(pl.col("name") == "non_finite")
