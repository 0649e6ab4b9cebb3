"""Validation phases: stretches of the training thread that use the model without training it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from perfwrap.measures.account import Account
from perfwrap.measures.lines import Line
from perfwrap.measures.loop_events import Events, has_grad
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
    """The line that called most of them, by their time."""


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
        grad_share=_grad_part(inside) * account.share_of(FORWARD),
        grad_line=_grad_line(inside, account),
    )


def _grad_part(inside: Events) -> float:
    """Return the part of the time of forward passes that those with gradients have."""
    lengths = inside.end - inside.start
    return float(lengths[has_grad(inside)].sum() / max(1, lengths.sum()))


def _grad_line(inside: Events, account: Account) -> Line | None:
    """Return the line on which most of the phases' forward passes with gradients were."""
    known = account.segments.filter(FORWARD, pl.col("file").is_not_null())
    with_grad = inside.only(has_grad(inside))
    if len(with_grad) < len(inside):
        # Segments of steps that were not looked at in detail lie in no forward pass: whose they are is not known.
        begun = np.searchsorted(with_grad.start, known["start"].to_numpy(), side="right") - 1
        ends = np.append(with_grad.end, 0)[begun]
        known = known.filter(pl.Series(known["start"].to_numpy() < ends))
    if known.is_empty():
        return None
    length = (pl.col("end") - pl.col("start")).sum().alias("ns")
    lines = known.group_by("file", "line").agg(pl.col("function").first(), length)
    row = lines.sort("ns", "file", "line", descending=[True, False, False]).row(0, named=True)
    return Line(row["file"], row["line"], row["function"] or "")
