"""The loop's calls of torch.cuda.empty_cache()."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line, line_of
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer


class CacheCalls(Struct, frozen=True):
    """The calls in the steady loop of one training thread."""

    count: int
    per_step: float
    duration_ns: int
    share: float
    """Share of the loop."""
    line: Line | None
    """The line with most time in the calls, None if unknown."""


def find_cache_calls(evidence: Evidence, trainer: Trainer) -> CacheCalls:
    """Return the calls of a trainer's steady loop."""
    account, steps = evidence.get(find_account, trainer), evidence.get(find_steps, trainer)
    calls = evidence.timeline.spans.filter(
        pl.col("operation") == "empty_cache",
        pl.col("track") == trainer.thread,
        pl.col("start").is_between(account.start, account.end),
    )
    sums = account.sums.filter(pl.col("operation") == "empty_cache")
    count = calls.height + int(sums["count"].sum())
    spent = int(calls["duration"].sum()) + int(sums["duration"].sum())
    known = calls.filter(pl.col("file").is_not_null())
    lines = known.group_by("file", "line", "function").agg(pl.col("duration").sum()).sort("duration", "line")
    return CacheCalls(
        count=count,
        per_step=count / max(1, steps.steady),
        duration_ns=spent,
        share=spent / max(1, account.total_ns),
        line=line_of(*lines.select("file", "line", "function").row(-1)) if lines.height else None,
    )
