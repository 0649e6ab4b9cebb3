"""Validation phases: times in which the training thread uses the model without training it."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_events import Events, has_grad
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer


class Validation(Struct, frozen=True):
    """The phases of one training thread; ``phases`` has start, end, loader (null without one) and forwards."""

    phases: pl.DataFrame
    count: int
    total_ns: int
    """All phases of the run, including those before and after the loop."""
    loop_ns: int
    """In the steady loop (the account)."""
    share: float
    """``loop_ns`` over the whole account."""
    median_ns: float | None
    with_grad: bool
    """Whether forwards of the phases ran with gradients enabled."""
    grad_share: float
    """Time of those forwards in the steady loop, over the whole account."""
    grad_line: Line | None
    """The line that called most of them, by time."""
    grad_line_trains: bool = False
    """Whether training calls the model at that line, too."""


FORWARD = (pl.col("part") == "validation") & (pl.col("operation") == "forward")
"""The segments of the account inside forward passes of the phases."""


def find_validation(evidence: Evidence, trainer: Trainer) -> Validation:
    """Return the validation phases that the search for steps found."""
    steps = evidence.get(find_steps, trainer)
    account = evidence.get(find_account, trainer)
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
    grad_line = _grad_line(inside, account)
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
        grad_line=grad_line,
        grad_line_trains=_trains(account, grad_line),
    )


def _grad_part(inside: Events) -> float:
    """Return the share of the forward time that ran with gradients."""
    lengths = inside.end - inside.start
    return float(lengths[has_grad(inside)].sum() / max(1, lengths.sum()))


def _trains(account: Account, line: Line | None) -> bool:
    """Return whether a line also calls the model outside the phases."""
    if line is None:
        return False
    at_line = (pl.col("file") == line.file) & (pl.col("line") == line.line)
    return (
        account.share_of((pl.col("part") != "validation") & (pl.col("operation") == "forward") & at_line) > 0
    )


def _grad_line(inside: Events, account: Account) -> Line | None:
    """Return the line with most of the phases' forward passes with gradients."""
    known = account.segments.filter(FORWARD, pl.col("file").is_not_null())
    with_grad = inside.only(has_grad(inside))
    if len(with_grad) < len(inside):
        # Segments of steps without detail are in no forward pass, so their owner is unknown.
        begun = np.searchsorted(with_grad.start, known["start"].to_numpy(), side="right") - 1
        ends = np.append(with_grad.end, 0)[begun]
        known = known.filter(pl.Series(known["start"].to_numpy() < ends))
    if known.is_empty():
        return None
    length = (pl.col("end") - pl.col("start")).sum().alias("ns")
    lines = known.group_by("file", "line").agg(pl.col("function").first(), length)
    row = lines.sort("ns", "file", "line", descending=[True, False, False]).row(0, named=True)
    return Line(row["file"], row["line"], row["function"] or "")
