"""Rules about host synchronization: the host waits for the GPU."""

from __future__ import annotations

from perfwrap.rules.host_sync import explicit_synchronize, gradient_norm_per_step, host_sync_in_step
from perfwrap.rules.model import Rule

TITLE = "Host synchronization"

RULES: tuple[Rule, ...] = (
    explicit_synchronize,
    gradient_norm_per_step,
    host_sync_in_step,
)
"""In the order in which they are shown and claim time."""
