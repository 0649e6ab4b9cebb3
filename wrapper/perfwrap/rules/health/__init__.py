"""Rules about health: hangs, memory, numbers."""

from __future__ import annotations

from perfwrap.rules.health import (
    allocator_churn,
    fragmentation,
    gpu_memory_growth,
    host_memory_growth,
    memory_at_peak,
    memory_pressure,
    non_finite_loss,
    out_of_memory,
    rank_restart,
    skipped_steps,
    stalled_run,
)
from perfwrap.rules.model import Rule

TITLE = "Health: hangs, memory, numbers"

RULES: tuple[Rule, ...] = (
    rank_restart,
    stalled_run,
    out_of_memory,
    gpu_memory_growth,
    host_memory_growth,
    fragmentation,
    memory_pressure,
    allocator_churn,
    memory_at_peak,
    non_finite_loss,
    skipped_steps,
)
"""In the order in which they are shown and claim time."""
