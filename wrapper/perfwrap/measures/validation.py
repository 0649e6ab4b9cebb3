"""Validation phases: stretches of the training thread that use the model without training it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from perfwrap.measures.account import Account
from perfwrap.measures.lines import Line
from perfwrap.measures.loop_events import has_grad
from perfwrap.measures.steps import Steps


@dataclass(frozen=True)
class Validation:
    """The phases of one trainer; ``phases`` has start, end, loader (null without one) and forwards."""

    phases: pl.DataFrame
    count: int
    total_ns: int
    """All phases of the run, also those before and after the loop."""
    loop_ns: int
    """Of the steady loop (the account)."""
    share: float
    """``loop_ns`` over the whole account."""
    median_ns: float | None
    with_grad: bool
    """Whether forwards of the phases ran with gradients enabled."""
    grad_share: float
    """Time of those forwards in the steady loop, over the whole account."""
    grad_line: Line | None
    """The line that called most of them."""


FORWARD = (pl.col("part") == "validation") & (pl.col("operation") == "forward")
"""The segments of the account inside forward passes of the phases."""


def find_validation(steps: Steps, account: Account) -> Validation:
    """Return the validation phases that the search for steps found."""
    found, events = steps.phases, steps.events
    inside = events.forward.only(found.contain(events.forward.start))
    loaders = [events.names[key] if key >= 0 else None for key in found.key.tolist()]
    begun = np.searchsorted(found.start, inside.start, side="right") - 1
    phases = pl.DataFrame(
        {
            "start": found.start,
            "end": found.end,
            "loader": pl.Series(loaders, dtype=pl.String),
            "forwards": np.bincount(begun, minlength=found.start.size),
        }
    )
    durations = found.end - found.start
    loop_ns = account.ns["validation"]
    return Validation(
        phases=phases,
        count=phases.height,
        total_ns=int(durations.sum()),
        loop_ns=loop_ns,
        share=account.shares["validation"],
        median_ns=float(np.median(durations)) if durations.size else None,
        with_grad=bool(has_grad(inside).any()),
        grad_share=float(has_grad(inside).mean()) * account.share_of(FORWARD) if len(inside) else 0.0,
        grad_line=_line(account),
    )


def _line(account: Account) -> Line | None:
    """Return the line on which most of the phases' forward passes were."""
    known = account.segments.filter(FORWARD, pl.col("file").is_not_null())
    if known.is_empty():
        return None
    length = (pl.col("end") - pl.col("start")).sum().alias("ns")
    lines = known.group_by("file", "line").agg(pl.col("function").first(), length)
    row = lines.sort("ns", "file", "line", descending=[True, False, False]).row(0, named=True)
    return Line(row["file"], row["line"], row["function"] or "")
