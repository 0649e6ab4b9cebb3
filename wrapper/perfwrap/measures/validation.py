"""Validation phases: stretches of the training thread that use the model without training it."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl


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
