"""Rules about the training loop outside the model."""

from __future__ import annotations

from perfwrap.rules.loop import (
    activation_checkpointing,
    checkpoint_stall,
    dense_embedding,
    distribution_checks,
    evaluation_each_step,
    evaluation_with_grad,
    gc_pause,
    hottest_functions,
    logging_overhead,
    loop_in_model,
    padded_batches,
    program_profiler,
    python_overhead,
    recompilation,
    repeated_backward,
    slow_optimizer,
    slow_steps,
    slowing_steps,
    unused_gradients,
    validation_share,
    zero_grad_memset,
)
from perfwrap.rules.model import Rule

TITLE = "Training loop outside the model"

RULES: tuple[Rule, ...] = (
    checkpoint_stall,
    validation_share,
    program_profiler,
    gc_pause,
    evaluation_each_step,
    evaluation_with_grad,
    recompilation,
    zero_grad_memset,
    repeated_backward,
    activation_checkpointing,
    unused_gradients,
    padded_batches,
    dense_embedding,
    slow_optimizer,
    slow_steps,
    slowing_steps,
    logging_overhead,
    distribution_checks,
    loop_in_model,
    python_overhead,
    hottest_functions,
)
"""In the order in which they are shown and claim time."""
