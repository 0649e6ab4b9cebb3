"""GPU memory is nearly full; a slightly larger batch ends the run.

What it finds
    A GPU of the run with at least 92 % of its memory in use during the training loop, of which torch's allocator holds
    little in reserve.

Why it costs
    One longer sequence or one more evaluation ends the run. Before that the allocator frees its cache and allocates
    again, which waits for the GPU.

How the gain is estimated
    It costs no time by itself, so no share is claimed.

How to fix
    A smaller batch with gradient accumulation, activation checkpointing, bfloat16, a sharded or 8-bit optimizer.

When it is wrong
    When all inputs have one size and the run has shown that they fit.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu.gpu_state import find_gpus
from perfwrap.measures.health.memory import find_allocator
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.levers import find_levers
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option

NEEDS = ("trainer", "steps", "gpu")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    nearly_full_share: float = 0.92
    full_share: float = 0.97
    """Share of the GPU memory; TraceML's thresholds."""
    min_peak_share: float = 0.85
    """Peak share in use at once; below it, the rest is torch's reserve, which it can use at any time."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check how full the run's GPUs are."""
    allocator = evidence.get(find_allocator, trainer)
    own = [gpu for gpu in evidence.get(find_gpus) if gpu.of_run] or list(evidence.get(find_gpus))
    known = [
        (gpu.memory_used_bytes / gpu.memory_total_bytes, gpu)
        for gpu in own
        if gpu.memory_used_bytes is not None and gpu.memory_total_bytes
    ]
    if not known:
        return NotChecked("GPU memory use was not recorded.")
    used, gpu = max(known, key=lambda pair: pair[0])
    words = f"{units.share(used)} of the {units.size(gpu.memory_total_bytes)} of {gpu.name} are used."
    if used < limits.nearly_full_share:
        return Clear(words)
    if allocator is not None and allocator.total and allocator.peak_allocated.height:
        peak = float(allocator.peak_allocated["value"].max() or 0.0)  # type: ignore[arg-type]
        if peak < limits.min_peak_share * allocator.total:
            return Clear(
                f"{words} At most {units.size(peak)} were in use at once; the rest is torch's reserve."
            )
        words += f" At most {units.size(peak)} were in use at once."
    levers = evidence.get(find_levers, trainer)
    types = "" if levers.half else "bfloat16, "
    return [
        Finding(
            title=f"{gpu.name} has only {units.share(1.0 - used)} of its memory left.",
            share=0.0,
            evidence=(words,),
            options=(
                Option(
                    "Before you use longer inputs or a larger model: a smaller batch with gradient accumulation, "
                    f"{levers.checkpointing}, {types}or an optimizer with a smaller state.",
                    (1.0, 1.0),
                ),
            ),
            confidence="measured" if allocator is not None else "inferred",
            min_severity="minor" if used >= limits.full_share else "note",
        )
    ]
