"""Rules about work inside forward, loss, backward and optimizer that need not run."""

from __future__ import annotations

from perfwrap.rules.model import Rule
from perfwrap.rules.wasted_work import (
    frozen_part_with_gradients,
    full_sort,
    linear_on_repeated_rows,
    log_of_softmax,
    loop_of_small_operations,
    materialised_broadcast,
    metrics_each_step,
    needless_weight_gradients,
    recast_weights,
    repeated_work,
    unchanging_work,
    unused_work,
)

TITLE = "Wasted work inside the step"

RULES: tuple[Rule, ...] = (
    unchanging_work,
    repeated_work,
    unused_work,
    frozen_part_with_gradients,
    needless_weight_gradients,
    recast_weights,
    loop_of_small_operations,
    materialised_broadcast,
    linear_on_repeated_rows,
    full_sort,
    log_of_softmax,
    metrics_each_step,
)
"""In the order in which they are shown."""
