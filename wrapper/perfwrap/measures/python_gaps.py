"""Where the training thread was in the user's own Python, between two recorded events."""

from __future__ import annotations

from dataclasses import dataclass

from perfwrap.measures.lines import Line


@dataclass(frozen=True)
class PythonGap:
    """One stretch of the loop, from the line of the event before it to the line of the next; steady loop."""

    after: Line | None
    until_line: int | None
    """The line of the next event, when it stands in the same file."""
    after_operation: str
    """The recorded event before the stretch, e.g. ``backward``."""
    before_operation: str
    """The recorded event after it, e.g. ``data``."""
    count: int
    per_step_ns: float
    total_ns: int
    share: float
    """``total_ns`` over the whole account."""
