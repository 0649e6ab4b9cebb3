"""Steps far slower than the median, and what each of them had more than others."""

from __future__ import annotations

from dataclasses import dataclass

from perfwrap.measures.lines import Line


@dataclass(frozen=True)
class SlowStep:
    """One slow step and the part that explains most of its excess over the median step."""

    index: int
    start: int
    duration_ns: int
    excess_ns: int
    cause: str
    """A part of the account, ``epoch start`` (a new iterator of the training loader), or ``unexplained``."""
    cause_ns: int
    """How much more of that part it had than a median step."""
    where: Line | None
    """The line with most of that part's time in this step."""


@dataclass(frozen=True)
class SlowSteps:
    """The spread of the steady steps."""

    p50_ns: float
    p99_ns: float
    spread: float
    """p99 over p50."""
    slow: tuple[SlowStep, ...]
    """Steady, detailed steps above SLOW times the median, in order."""
    excess_ns: int
    """Time of the slow steps beyond as many median steps."""
    share: float
    """``excess_ns`` over the whole account."""
    causes: dict[str, int]
    """Excess per cause, most first."""
    period: int | None
    """Slow steps come every so many steps, None when they come irregularly."""
