"""The account: every nanosecond of the training thread's steady loop, counted exactly once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

PARTS = (
    "data",
    "transfer",
    "forward",
    "backward",
    "optimizer",
    "sync",
    "checkpoint",
    "validation",
    "compile",
    "gc",
    "perfwrap",
    "python",
)
"""The exclusive parts, in the order in which reports show them."""

SEGMENT_COLUMNS = {
    "start": pl.Int64,
    "end": pl.Int64,
    "part": pl.Enum(PARTS),
    "operation": pl.String,
    "name": pl.String,
    "file": pl.String,
    "line": pl.Int32,
    "function": pl.String,
    "until_line": pl.Int32,
    "step": pl.Int64,
    "estimated": pl.Boolean,
}


@dataclass(frozen=True)
class Account:
    """Segments that tile [start, end) of the training thread: no gap, no overlap, integers only.

    ``segments`` has the columns of SEGMENT_COLUMNS. A segment names the innermost recorded event that it lies in;
    a ``python`` segment lies in none: it carries the line of the event before it and, as ``until_line``, that of
    the next event in the same file. Inside a validation phase everything is ``validation``, whatever its operation.
    ``step`` is the index in the steps' table, null after the last step. ``estimated`` segments stand for thinned
    steps: their lengths come from exact sums, their places do not.
    """

    segments: pl.DataFrame
    start: int
    end: int

    @property
    def total_ns(self) -> int:
        """The length of the account."""
        return self.end - self.start

    @cached_property
    def ns(self) -> dict[str, int]:
        """Nanoseconds of each part; every part is there, their sum is ``total_ns``."""
        lengths = self.segments.group_by("part").agg((pl.col("end") - pl.col("start")).sum().alias("ns"))
        found = dict(zip(lengths["part"].to_list(), lengths["ns"].to_list(), strict=True))
        return {part: int(found.get(part, 0)) for part in PARTS}

    @cached_property
    def shares(self) -> dict[str, float]:
        """Each part over the whole; all 0 when the account is empty."""
        return {part: value / self.total_ns if self.total_ns else 0.0 for part, value in self.ns.items()}
