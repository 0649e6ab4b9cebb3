"""Much of the GPU memory that torch holds is in pieces that it cannot use.

What it finds
    Memory reserved by torch's allocator that is half as much again as was ever in use at once, or more, where that is
    30 % of the card or more.

Why it costs
    What is reserved in pieces of the wrong size cannot be used: the run runs out of memory with memory left, or the
    allocator gives memory back to the driver and asks again, which waits for the GPU.

How the saving is worked out
    It costs no time by itself, so no share is claimed; allocator_retries has the time of asking the driver.

How to fix
    PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before PyTorch 2.9); inputs of few different
    sizes (padding, buckets).

When it is wrong
    When the program resets the peak that torch counts (torch.cuda.reset_peak_memory_stats).
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked

NEEDS = ("trainer", "steps", "allocator")

LEAST_FACTOR = 1.5
"""Reserved over the peak of what was allocated. What is allocated at the end of a step would not do: activations are
gone by then, and their memory is kept for the next step on purpose."""
LEAST_CARD_SHARE = 0.3
"""Of the card's memory; the catalogue's figure."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Compare what is reserved with the most that was in use."""
    allocator = evidence.allocator(trainer)
    if allocator is None or allocator.reserved.is_empty() or allocator.peak_allocated.is_empty():
        return NotChecked(
            "torch's allocator of a GPU told nothing: none was used, or several processes share one."
        )
    reserved = float(allocator.reserved["value"][-1])
    peak = float(allocator.peak_allocated["value"].max() or 0.0)  # type: ignore[arg-type]
    words = f"{units.size(reserved)} are reserved; at most {units.size(peak)} were in use at once."
    if peak <= 0 or reserved < LEAST_FACTOR * peak:
        return Clear(words)
    if allocator.total is None:
        return NotChecked(f"{words} How much memory the card has is not known.")
    if reserved < LEAST_CARD_SHARE * allocator.total:
        return Clear(f"{words} The card has {units.size(allocator.total)}.")
    setting = evidence.facts(trainer.process)
    known = setting.get("env/PYTORCH_ALLOC_CONF", "") + setting.get("env/PYTORCH_CUDA_ALLOC_CONF", "")
    expandable = "expandable_segments:True" in known
    return [
        Finding(
            title=f"{units.size(reserved - peak)} of GPU memory are reserved in pieces that were never in use at once.",
            share=0.0,
            saving=(1.0, 1.0),
            evidence=(f"{words} The card has {units.size(allocator.total)}.",),
            advice="Let inputs have few different sizes (padding, buckets): segments are expandable already."
            if expandable
            else "Set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before PyTorch 2.9).",
            health=True,
            at_least="minor",
        )
    ]
