"""The rules about: data loading."""

from __future__ import annotations

from perfwrap.rules.data_loading import (
    data_loader_single_process,
    data_loader_wait,
    first_batch_latency,
    gpu_waits_for_data,
    item_time_spread,
    items_never_change,
    needless_workers,
    shallow_prefetch,
    shared_memory_limit,
    slow_collate,
    slow_item,
    storage_bound_input,
    too_few_workers,
    too_many_workers,
    worker_imbalance,
    worker_lock_contention,
    worker_restart,
)
from perfwrap.rules.model import Rule

TITLE = "Data loading"

RULES: tuple[Rule, ...] = (
    shared_memory_limit,
    first_batch_latency,
    worker_restart,
    items_never_change,
    data_loader_single_process,
    needless_workers,
    storage_bound_input,
    worker_lock_contention,
    too_many_workers,
    worker_imbalance,
    item_time_spread,
    shallow_prefetch,
    too_few_workers,
    slow_collate,
    slow_item,
    data_loader_wait,
    gpu_waits_for_data,
)
"""In the order in which they are shown and claim time."""
