"""Functions of the program that run between the phases of a step, with many reads of values in them."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer

LOOP_OPERATIONS = ("backward", "optimizer", "data", "zero_grad", "scaler_step")
"""Operations whose callers are the training loop itself."""
MIN_READS_PER_STEP = 5
"""Reads of values per step from which a function probably loops."""
LENGTH = pl.col("end") - pl.col("start")


class BusyFunction(Struct, frozen=True):
    """One function: its time between reads and in them, in the steady loop."""

    first: Line
    until_line: int
    share: float
    """Of the whole account."""
    per_step_ns: float
    reads_per_step: float

    @property
    def segments(self) -> pl.Expr:
        """The segments of the account in it."""
        return (
            pl.col("part").is_in(["python", "sync"])
            & (pl.col("file") == self.first.file)
            & (pl.col("function") == self.first.function)
        )


def find_busy_functions(evidence: Evidence, trainer: Trainer) -> tuple[BusyFunction, ...]:
    """Return the functions with many reads per step, most time first, without those that hold the training loop.

    A function that only the reads show begins at its first read. The recorder finds the line of the first reads of a
    step, and of a part of the others: those without a line are divided like those with one.
    """
    account, steps = evidence.get(find_account, trainer), evidence.get(find_steps, trainer)
    segments = account.segments.filter(pl.col("file").is_not_null(), pl.col("function").is_not_null())
    key = ["file", "function"]
    loops = segments.filter(pl.col("operation").is_in(LOOP_OPERATIONS)).select(key).unique()
    reads = (pl.col("operation") == "sync") & ~pl.col("estimated")
    recorded = account.segments.filter(reads)
    located = recorded.filter(pl.col("file").is_not_null(), pl.col("function").is_not_null()).height
    each = recorded.height / max(1, located)
    detailed = max(1, int(steps.table.filter("steady")["detailed"].sum()))
    rows = (
        segments.filter(pl.col("part").is_in(["python", "sync"]), pl.col("function") != "<module>")
        .join(loops, on=key, how="anti")
        .group_by(key)
        .agg(
            LENGTH.sum().alias("ns"),
            pl.col("line").min().alias("first"),
            pl.col("line").max().alias("last"),
            (reads.fill_null(False).sum() * each / detailed).alias("reads"),
        )
        .filter(pl.col("reads") >= MIN_READS_PER_STEP)
        .sort("ns", *key, descending=[True, False, False])
    )
    return tuple(
        BusyFunction(
            Line(row["file"], row["first"], row["function"]),
            row["last"],
            row["ns"] / max(1, account.total_ns),
            row["ns"] / max(1, steps.steady),
            row["reads"],
        )
        for row in rows.iter_rows(named=True)
    )
