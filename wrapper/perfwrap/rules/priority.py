"""The order in which rules claim time of the training loop.

No time is counted twice: each segment of the account belongs to the first finding that claims it. A rule that knows the
cause comes before one that sees only the symptom, and a rule about one kind of wait before those about slowness in
general. The position of rules that claim no time does not matter; a rule that is not listed claims first.
"""

from __future__ import annotations

ORDER = (
    # Waits for batches: a limit of the machine, the start, a wrong setting, slow samples, then any wait.
    "shared_memory_limit",
    "first_batch_latency",
    "worker_restart",
    "data_loader_single_process",
    "needless_workers",
    "storage_bound_input",
    "worker_lock_contention",
    "too_many_workers",
    "worker_imbalance",
    "item_time_spread",
    "shallow_prefetch",
    "too_few_workers",
    "slow_collate",
    "slow_item",
    "data_loader_wait",
    "gpu_waits_for_data",
    # Waits for the GPU: an explicit call, one for a norm, then any read of a value.
    "explicit_synchronize",
    "gradient_norm_per_step",
    "host_sync_in_step",
    # Work between the steps with a known call.
    "checkpoint_stall",
    "validation_share",
    "gc_pause",
    "evaluation_with_grad",
    # Work inside the steps with a known call.
    "recompilation",
    "zero_grad_memset",
    "repeated_backward",
    "unused_gradients",
    "padded_batches",
    "dense_embedding",
    "slow_optimizer",
    # Slow steps and slow ranks, whatever the cause.
    "straggler_rank",
    "slow_steps",
    "slowing_steps",
    # Time in which only the program's own Python code ran.
    "logging_overhead",
    "python_overhead",
    # Problems that slow down everything on the host.
    "thread_oversubscription",
    "cpu_quota_throttling",
    "cpu_affinity_limit",
    "swapping",
    # Waits of the GPU or the host between kernels.
    "allocator_retries",
    "launch_bound",
    "device_round_trip",
    "unpinned_transfer",
    "blocking_transfer",
    "exposed_transfer",
    # Communication between ranks.
    "exposed_communication",
    "synchronised_accumulation",
    "unused_parameter_search",
    "buffer_broadcast",
    "data_parallel_module",
    # GPU calls and kernels that could be faster.
    "empty_cache_in_step",
    "tensor_cores_unused",
    "slow_attention",
    "layout_conversions",
    "dtype_casts",
    "misaligned_shapes",
    "unfused_elementwise",
    "cudnn_autotune_off",
    "small_batch",
    # Limits of the GPU itself.
    "kernel_hotspot",
    "gpu_throttled",
    "shared_gpu",
    "degraded_link",
    "busy_but_idle_units",
    "utilization_sawtooth",
    # Settings and limits of the whole loop.
    "debug_mode_enabled",
    "double_precision",
    "compute_bound",
    "phase_balance",
    # Time outside the steady loop, and health: they claim no time of the loop.
    "first_epoch_slower",
    "slow_start",
    "rank_restart",
    "stalled_run",
    "out_of_memory",
    "gpu_memory_growth",
    "host_memory_growth",
    "fragmentation",
    "memory_pressure",
    "non_finite_loss",
    "skipped_steps",
    "profiler_cost",
)

_PLACES = {rule: place for place, rule in enumerate(ORDER)}


def priority(rule: str) -> int:
    """Return a number that is lower the earlier the rule claims time."""
    return _PLACES.get(rule, -1)
