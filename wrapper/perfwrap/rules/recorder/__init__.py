"""Rules about perfwrap itself."""

from __future__ import annotations

from perfwrap.rules.model import Rule
from perfwrap.rules.recorder import profiler_cost

TITLE = "perfwrap itself"

RULES: tuple[Rule, ...] = (profiler_cost,)
"""In the order in which they are shown and claim time."""
