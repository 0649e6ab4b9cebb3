"""Whether the steady steps are enough evidence for a verdict: by their number, their time and their spread."""

from __future__ import annotations

import numpy as np
import polars as pl

from perfwrap.measures.account.loop_events import Integers, thread_spans
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer

MANY = 20
"""Steps from which the number is enough, if they do not vary too much."""
FEW = 5
MIN_NS = 2_000_000_000
"""Fewer than MANY steps must be at least FEW, take this time together, and vary little."""
MAX_ERROR = 0.15
"""Maximum standard error of the mean of few steps, as a share of the mean."""
MAX_ERROR_OF_MANY, SHORT_NS = 0.3, 2_000_000_000
"""The same for many steps, if they are shorter than this together."""
MIN_IMPORTED = 3
"""The usual number of steps in a profiler's window; such a recording excludes the warm-up."""
NEEDED = f"{MANY} steady steps, or {FEW} that take {MIN_NS // 1_000_000_000} s together and vary little"

TOO_VARIED = f"take less than {SHORT_NS // 1_000_000_000} s together and vary too much"
"""Why MANY steps or more are not enough."""


def are_enough(evidence: Evidence, trainer: Trainer) -> bool:
    """Return whether the steady steps of a trainer carry a verdict."""
    steps = evidence.get(find_steps, trainer)
    if "imported" in evidence.timeline.run:
        return steps.steady >= MIN_IMPORTED
    durations = steps.table.filter("steady")["duration"].to_numpy()
    passes = _passes(evidence, trainer, steps.warm_up_end, steps.loop_end)
    return is_enough(durations) or (int(passes.sum()) >= MIN_NS and is_enough(passes))


def is_enough(durations: Integers) -> bool:
    """Return whether steps of these durations are enough."""
    total = int(durations.sum())
    if durations.size < FEW or not total:
        return False
    error = float(durations.std() / durations.mean() / np.sqrt(durations.size))
    if durations.size >= MANY:
        return total >= SHORT_NS or error <= MAX_ERROR_OF_MANY
    return total >= MIN_NS and error <= MAX_ERROR


def _passes(evidence: Evidence, trainer: Trainer, start: int, end: int) -> Integers:
    """Return the times from one backward pass to the next: of closures and of micro-batches."""
    passes = thread_spans(evidence.timeline, trainer).filter(
        pl.col("operation") == "backward", pl.col("start").is_between(start, end)
    )
    return np.diff(passes["start"].to_numpy())
