"""The problems that perfwrap finds; one file each.

The order is that of every list of rules shown to the user, and that in which findings take their share of the
account: what explains some time stands before what only notices it.
"""

from __future__ import annotations

from perfwrap.rules import (
    allocator_retries,
    buffer_broadcast,
    checkpoint_stall,
    compute_bound,
    data_loader_single_process,
    data_loader_wait,
    data_parallel_module,
    empty_cache_in_step,
    exposed_communication,
    exposed_transfer,
    fragmentation,
    gc_pause,
    gpu_memory_growth,
    gpu_waits_for_data,
    host_memory_growth,
    host_sync_in_step,
    launch_bound,
    memory_pressure,
    non_finite_loss,
    out_of_memory,
    profiler_cost,
    python_overhead,
    skipped_steps,
    slow_start,
    slow_steps,
    straggler_rank,
    synchronised_accumulation,
    tensor_cores_unused,
    thread_oversubscription,
    unused_parameter_search,
    validation_share,
    worker_restart,
)
from perfwrap.rules.model import Rule

RULES: tuple[Rule, ...] = (
    worker_restart,
    data_loader_single_process,
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
    straggler_rank,
    synchronised_accumulation,
    unused_parameter_search,
    buffer_broadcast,
    data_parallel_module,
    empty_cache_in_step,
    tensor_cores_unused,
    compute_bound,
    slow_start,
    out_of_memory,
    gpu_memory_growth,
    host_memory_growth,
    fragmentation,
    memory_pressure,
    non_finite_loss,
    skipped_steps,
    profiler_cost,
)
"""Every rule that is asked."""
