"""Much of torch's reserved GPU memory is in fragments that it cannot use.

What it finds
    Memory reserved by torch's allocator that is at least 1.5 times the peak in use, if that is at least 30 % of the GPU
    memory.

Why it costs
    Reserved blocks of the wrong size cannot be used: the run gets out-of-memory errors although memory is free, or the
    allocator returns memory to the driver and allocates again, which waits for the GPU.

How the gain is estimated
    It costs no time by itself, so no share is claimed; allocator_retries has the time of driver allocations.

How to fix
    PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before PyTorch 2.9); inputs of few different
    sizes (padding, buckets).

When it is wrong
    When the program resets torch's peak counter (torch.cuda.reset_peak_memory_stats).
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.health.memory import find_allocator
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option

NEEDS = ("trainer", "steps", "allocator")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_factor: float = 1.5
    """Reserved over peak allocated memory. The memory allocated at the end of a step is not used here: activations are
    freed by then, and their memory is kept for the next step on purpose."""
    min_card_share: float = 0.3
    """Share of the GPU memory."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Compare the reserved memory with the peak in use."""
    allocator = evidence.get(find_allocator, trainer)
    if allocator is None or allocator.reserved.is_empty() or allocator.peak_allocated.is_empty():
        return NotChecked("No GPU memory data: no GPU was used, or several processes share it.")
    reserved = float(allocator.reserved["value"][-1])
    peak = float(allocator.peak_allocated["value"].max() or 0.0)  # type: ignore[arg-type]
    words = f"{units.size(reserved)} are reserved; at most {units.size(peak)} were in use at once."
    if peak <= 0 or reserved < limits.min_factor * peak:
        return Clear(words)
    if allocator.total is None:
        return NotChecked(f"{words} The size of the GPU memory is unknown.")
    if reserved < limits.min_card_share * allocator.total:
        return Clear(f"{words} The GPU has {units.size(allocator.total)}.")
    setting = evidence.get(find_facts, trainer.process)
    known = setting.get("env/PYTORCH_ALLOC_CONF", "") + setting.get("env/PYTORCH_CUDA_ALLOC_CONF", "")
    expandable = "expandable_segments:True" in known
    return [
        Finding(
            title=f"{units.size(reserved - peak)} of GPU memory are reserved but were never in use at once.",
            share=0.0,
            evidence=(f"{words} The GPU has {units.size(allocator.total)}.",),
            options=(
                Option(
                    "Use inputs of few different sizes (padding, buckets); segments are already expandable."
                    if expandable
                    else "Set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before "
                    "PyTorch 2.9).",
                    (1.0, 1.0),
                ),
            ),
            health=True,
            min_severity="minor",
        )
    ]
