"""Rules about jobs with several ranks."""

from __future__ import annotations

from perfwrap.rules.model import Rule
from perfwrap.rules.ranks import (
    buffer_broadcast,
    data_parallel_module,
    exposed_communication,
    small_collectives,
    straggler_rank,
    synchronised_accumulation,
    unused_parameter_search,
)

TITLE = "Several ranks"

RULES: tuple[Rule, ...] = (
    straggler_rank,
    small_collectives,
    exposed_communication,
    synchronised_accumulation,
    unused_parameter_search,
    buffer_broadcast,
    data_parallel_module,
)
"""In the order in which they are shown and claim time."""
