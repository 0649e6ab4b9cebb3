"""The training thread in the user's own Python, between two recorded events."""

from __future__ import annotations

from typing import Any

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.lines import Line, line_of
from perfwrap.measures.account.parts import INTERRUPTIONS
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.steps import Steps, find_steps
from perfwrap.measures.trainers import Trainer


class PythonGap(Struct, frozen=True):
    """One section of the loop, from the line of the event before it to the line of the next; steady loop."""

    after: Line | None
    until_line: int | None
    """The line of the next event, if it is in the same file."""
    after_operation: str
    """The recorded event before the section, e.g. ``backward``."""
    before_operation: str
    """The recorded event after it, e.g. ``data``."""
    count: int
    per_step_ns: float
    total_ns: int
    share: float
    """``total_ns`` over the whole account."""

    @property
    def segments(self) -> pl.Expr:
        """The segments of the account in this section."""
        own = pl.col("part") == "python"
        if self.after is None:
            own &= pl.col("file").is_null()
        else:
            own &= (pl.col("file") == self.after.file) & (pl.col("line") == self.after.line)
        own &= pl.col("after_operation").fill_null("") == self.after_operation
        own &= pl.col("before_operation").fill_null("") == self.before_operation
        return own & pl.col("until_line").eq_missing(pl.lit(self.until_line, pl.Int32))


LENGTH = pl.col("end") - pl.col("start")
WAITING_OPERATION = "collective"
"""In the program's own collectives ranks wait for each other: this is not Python time, although the account has no
separate part for it."""

KEY = ("file", "line", "until_line", "after_operation", "before_operation")


def find_python_gaps(evidence: Evidence, trainer: Trainer) -> tuple[PythonGap, ...]:
    """Return the sections of the ``python`` part by the operations before and after them, most time first."""
    account, steps = evidence.get(find_account, trainer), evidence.get(find_steps, trainer)
    gaps = (
        account.segments.sort("start")
        .with_columns(_begins())
        .filter(pl.col("part") == "python", (pl.col("operation") != WAITING_OPERATION).fill_null(True))
        .group_by(KEY)
        .agg(
            pl.col("function").first(),
            _count().alias("count"),
            LENGTH.sum().alias("ns"),
        )
        .sort("ns", *KEY, descending=[True] + [False] * len(KEY), nulls_last=True)
    )
    return tuple(_gap(row, steps, account) for row in gaps.iter_rows(named=True))


def pieces_of(account: Account, gap: PythonGap) -> pl.DataFrame:
    """Return when a section ran, in steps with detail: one row with ``start`` and ``end`` for each time."""
    rows = account.segments.sort("start").filter(~pl.col("part").is_in(INTERRUPTIONS))
    rows = rows.with_columns(_begins().cum_sum().alias("piece")).filter(gap.segments, ~pl.col("estimated"))
    return rows.group_by("piece").agg(pl.col("start").min(), pl.col("end").max()).sort("start").drop("piece")


def find_loss_gaps(evidence: Evidence, trainer: Trainer) -> tuple[PythonGap, ...]:
    """Return the sections between forward and backward, where the loss function runs."""
    return tuple(
        gap
        for gap in evidence.get(find_python_gaps, trainer)
        if gap.after_operation in ("forward", "gradient", "zero_grad")
        and gap.before_operation in ("backward", "gradient", "zero_grad")
    )


def _begins() -> pl.Expr:
    """Return whether a segment is the first of its section: garbage collections cut a section into several."""
    place = pl.struct("part", *KEY)
    last = pl.when(~pl.col("part").is_in(INTERRUPTIONS)).then(place).forward_fill().shift(1)
    return place.ne_missing(last).alias("begins")


def _count() -> pl.Expr:
    """Return how often a section ran; steps without detail count like the detailed ones."""
    seen = ~pl.col("estimated")
    often = (seen & pl.col("begins")).sum() * LENGTH.sum() / LENGTH.filter(seen).sum()
    return pl.when(seen.any()).then(often).otherwise(pl.len()).round().cast(pl.Int64)


def _gap(row: dict[str, Any], steps: Steps, account: Account) -> PythonGap:
    """Return the figures of one section."""
    return PythonGap(
        after=line_of(row["file"], row["line"], row["function"]),
        until_line=row["until_line"],
        after_operation=row["after_operation"] or "",
        before_operation=row["before_operation"] or "",
        count=row["count"],
        per_step_ns=row["ns"] / steps.steady,
        total_ns=row["ns"],
        share=row["ns"] / account.total_ns,
    )
