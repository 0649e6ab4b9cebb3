"""The problems that perfwrap finds; one file each.

The order is that of every list of rules shown to the user, and that in which findings take their share of the
account: what explains some time stands before what only notices it.
"""

from __future__ import annotations

from perfwrap.rules import (
    allocator_retries,
    checkpoint_stall,
    compute_bound,
    data_loader_single_process,
    data_loader_wait,
    exposed_communication,
    exposed_transfer,
    first_batch_latency,
    gc_pause,
    gpu_waits_for_data,
    host_sync_in_step,
    item_time_spread,
    launch_bound,
    non_finite_loss,
    profiler_cost,
    python_overhead,
    shallow_prefetch,
    shared_memory_limit,
    slow_collate,
    slow_item,
    slow_start,
    slow_steps,
    storage_bound_input,
    tensor_cores_unused,
    thread_oversubscription,
    too_few_workers,
    too_many_workers,
    validation_share,
    worker_imbalance,
    worker_restart,
)
from perfwrap.rules.model import Rule

RULES: tuple[Rule, ...] = (
    shared_memory_limit,
    first_batch_latency,
    worker_restart,
    data_loader_single_process,
    storage_bound_input,
    too_many_workers,
    worker_imbalance,
    item_time_spread,
    shallow_prefetch,
    too_few_workers,
    slow_collate,
    slow_item,
    data_loader_wait,
    gpu_waits_for_data,
    host_sync_in_step,
    checkpoint_stall,
    validation_share,
    gc_pause,
    slow_steps,
    python_overhead,
    thread_oversubscription,
    allocator_retries,
    launch_bound,
    exposed_transfer,
    exposed_communication,
    tensor_cores_unused,
    compute_bound,
    slow_start,
    non_finite_loss,
    profiler_cost,
)
"""Every rule that is asked."""
