"""Whether steps after torch.profiler's window take longer than those before it: CUPTI may stay attached."""

from __future__ import annotations

import polars as pl

from perfwrap.measures.account.account import find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.ordinary_step import find_ordinary_step
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer

BEFORE, AFTER = 6, 40
"""Steps before the window and after it that are compared; before it, steps are few, and the first ones are slower."""
MIN_BEFORE = 4
SKIPPED = 2
"""Steps after the window that are left out: the first ones fill caches again."""
MAX_BUSY_SHARE = 0.9
"""Share of the loop above which the GPU decides how long a step takes: slower launches cannot make it longer, and the
first steps only fill its queue."""
MAX_DATA_SHARE = 0.3
"""Share of the loop above which waits for data, which differ from step to step, may explain a difference."""
MIN_SLOWER = 0.10
"""Smaller differences are usual between so few steps."""


def find_slower_after(evidence: Evidence, trainer: Trainer) -> float | None:
    """Return by which share steps after the window take longer than those before it; None if not, or if unknown.

    The median of the steps before it is compared with the lower quartile of those after it, so that slow steps among
    the latter do not count. Only for a window in which kernels were recorded.
    """
    if evidence.get(find_account, trainer).shares.get("data", 0.0) > MAX_DATA_SHARE:
        return None
    table, step = evidence.get(find_steps, trainer).table, evidence.get(find_ordinary_step, trainer)
    window = table.filter("windowed")["index"]
    if window.is_empty() or step is None or step.busy_share > MAX_BUSY_SHARE:
        return None
    first, last = int(window.min()), int(window.max())  # type: ignore[arg-type]
    before = table.filter(pl.col("index").is_between(first - BEFORE, first - 1))["duration"]
    after = table.filter(pl.col("index").is_between(last + 1 + SKIPPED, last + SKIPPED + AFTER))["duration"]
    if before.len() < MIN_BEFORE or after.len() < MIN_BEFORE:
        return None
    slower = float(after.quantile(0.25)) / float(before.median()) - 1  # type: ignore[arg-type]
    return slower if slower >= MIN_SLOWER else None
