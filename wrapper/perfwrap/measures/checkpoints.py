"""What saving and loading cost the training thread, line by line."""

from __future__ import annotations

from dataclasses import dataclass

from perfwrap.measures.lines import Line


@dataclass(frozen=True)
class CheckpointLine:
    """One line that saves or loads, in the steady loop outside of validation."""

    operation: str
    """``save`` or ``load``."""
    where: Line | None
    count: int
    blocked_ns: int
    share: float
    """``blocked_ns`` over the whole account."""
    median_ns: float
    every_steps: float | None
    """Steps from one call to the next (median), None for a single call."""
    bytes: int | None
    """Bytes written by one call (median), where known."""
