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
    gc_pause,
    gpu_waits_for_data,
    host_sync_in_step,
    launch_bound,
    non_finite_loss,
    profiler_cost,
    python_overhead,
    slow_start,
    slow_steps,
    tensor_cores_unused,
    thread_oversubscription,
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
    tensor_cores_unused,
    compute_bound,
    slow_start,
    non_finite_loss,
    profiler_cost,
)
"""Every rule that is asked."""
