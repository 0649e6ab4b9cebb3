"""Rules about the run as a whole."""

from __future__ import annotations

from perfwrap.rules.model import Rule
from perfwrap.rules.run import (
    compute_bound,
    debug_mode_enabled,
    double_precision,
    first_epoch_slower,
    half_precision_on_cpu,
    phase_balance,
    slow_start,
)

TITLE = "The run as a whole"

RULES: tuple[Rule, ...] = (
    debug_mode_enabled,
    double_precision,
    half_precision_on_cpu,
    compute_bound,
    phase_balance,
    first_epoch_slower,
    slow_start,
)
"""In the order in which they are shown and claim time."""
