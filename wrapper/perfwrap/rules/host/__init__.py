"""Rules about the CPU and memory of the machine."""

from __future__ import annotations

from perfwrap.rules.host import cpu_affinity_limit, cpu_quota_throttling, swapping, thread_oversubscription
from perfwrap.rules.model import Rule

TITLE = "CPU and memory of the machine"

RULES: tuple[Rule, ...] = (
    thread_oversubscription,
    cpu_quota_throttling,
    cpu_affinity_limit,
    swapping,
)
"""In the order in which they are shown and claim time."""
