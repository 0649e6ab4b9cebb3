"""Copies of tensors between devices: how often, how much and how long, by line."""

from __future__ import annotations

from typing import Any

import polars as pl
from msgspec import Struct

from perfwrap.journal_format import FROM_GPU, NON_BLOCKING, PINNED, TO_GPU
from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.lines import Line, line_of
from perfwrap.measures.account.loop_spans import loop_spans, paused_share, thinned_sums
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.steps import Steps, find_steps
from perfwrap.measures.trainers import Trainer

BYTES_UNIT = 1 << 8
"""The flags of a transfer's value are below its bytes."""

KEY = ("name", "file", "line", "function")
LENGTH = pl.col("end") - pl.col("start")
SIZE = pl.col("value") // BYTES_UNIT
DIRECTIONS = {0: "to_pinned", TO_GPU: "to_gpu", FROM_GPU: "from_gpu", TO_GPU | FROM_GPU: "both"}


def _has(bit: int) -> pl.Expr:
    """Return which values have a bit."""
    return (pl.col("value") & bit) != 0


WAITS = _has(FROM_GPU) & ~_has(TO_GPU) & ~_has(NON_BLOCKING)


class TransferLine(Struct, frozen=True):
    """One call on one line; figures are for the steady loop outside validation."""

    name: str
    """``Tensor.to``, ``Tensor.copy_``, ``Module.to`` and so on."""
    where: Line | None
    direction: str
    """``to_gpu``, ``from_gpu``, ``both`` (alternating, or between two GPUs), or ``to_pinned`` (within the host)."""
    count: int
    per_step: float
    bytes: int | None
    """Of all calls, scaled up from the detailed ones; None if a size is unknown."""
    bytes_per_step: float | None
    time_ns: int
    """Exclusive host time inside the call, from the account; the copy itself may continue after it."""
    time_ns_per_step: float
    share: float
    """``time_ns`` over the whole account."""
    pinned: float
    """Share of the detailed calls whose host memory was pinned."""
    non_blocking: float
    """Share of the detailed calls with non_blocking=True."""

    waits: bool
    """Whether some of the calls wait for the GPU: the line is then also one of the syncs."""


def find_transfers(evidence: Evidence, trainer: Trainer) -> tuple[TransferLine, ...]:
    """Return the copies of the steady loop by name and line, most time first.

    A line that no step in detail shows is left out: only its time is known, which the account has.
    """
    steps = evidence.get(find_steps, trainer)
    account = evidence.get(find_account, trainer)
    if not account.total_ns:
        return ()
    spans = _transfers(loop_spans(evidence.timeline, trainer, account))
    sums = _transfers(thinned_sums(account))
    time = _transfers(account.segments).group_by(KEY).agg(LENGTH.sum().alias("time"))
    detailed = spans.group_by(KEY).agg(
        pl.len().cast(pl.Int64).alias("seen"),
        pl.when((SIZE >= 0).all()).then(SIZE.sum()).alias("bytes"),
        WAITS.any().alias("waits"),
        *(_has(bit).any().alias(name) for name, bit in (("to", TO_GPU), ("from", FROM_GPU))),
        *(_has(bit).mean().alias(name) for name, bit in (("pinned", PINNED), ("fast", NON_BLOCKING))),
    )
    counted = sums.group_by(KEY).agg(pl.col("count").sum().alias("thinned"))
    rows = detailed.join(counted, on=KEY, how="left", nulls_equal=True).join(
        time, on=KEY, how="left", nulls_equal=True
    )
    # Steps while recording is paused have as many as the others.
    noted = 1 - paused_share(steps, account)
    count = ((pl.col("seen") + pl.col("thinned")) / noted).round().cast(pl.Int64).alias("count")
    filled = rows.with_columns(pl.col("thinned", "time").fill_null(0)).with_columns(count)
    lines = (_line(row, steps, account) for row in filled.sort(*KEY, nulls_last=True).iter_rows(named=True))
    return tuple(sorted(lines, key=lambda line: -line.time_ns))


def waiting_lines(spans: pl.DataFrame) -> pl.DataFrame:
    """Return the names and lines of the loop's spans that copy from a GPU and wait for it."""
    return _transfers(spans).filter(WAITS).select(KEY).unique()


def _transfers(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows about copies outside validations."""
    return rows.filter(pl.col("operation") == "transfer", pl.col("part") == "transfer")


def _line(row: dict[str, Any], steps: Steps, account: Account) -> TransferLine:
    """Return the figures of one line."""
    count, time = row["count"], row["time"]
    size = None if row["bytes"] is None else row["bytes"] * count // row["seen"]
    return TransferLine(
        name=row["name"] or "",
        where=line_of(row["file"], row["line"], row["function"]),
        direction=DIRECTIONS[TO_GPU * row["to"] | FROM_GPU * row["from"]],
        count=count,
        per_step=count / steps.steady,
        bytes=size,
        bytes_per_step=None if size is None else size / steps.steady,
        time_ns=time,
        time_ns_per_step=time / steps.steady,
        share=time / account.total_ns,
        pinned=row["pinned"],
        non_blocking=row["fast"],
        waits=row["waits"],
    )
