"""Rules about launches, copies and allocations."""

from __future__ import annotations

from perfwrap.rules.model import Rule
from perfwrap.rules.transfers import (
    allocator_retries,
    blocking_transfer,
    device_round_trip,
    empty_cache_in_step,
    exposed_transfer,
    gpu_waits_for_host,
    launch_bound,
    unpinned_transfer,
)

TITLE = "Launches, copies and allocations"

RULES: tuple[Rule, ...] = (
    allocator_retries,
    launch_bound,
    device_round_trip,
    unpinned_transfer,
    blocking_transfer,
    exposed_transfer,
    empty_cache_in_step,
    gpu_waits_for_host,
)
"""In the order in which they are shown and claim time."""
