"""The GPU's memory is nearly full, so that a slightly larger batch ends the run.

What it finds
    A GPU of the run of which 92 % of the memory or more is used during the training loop, and where torch's allocator
    has at most little of it in reserve.

Why it costs
    One longer sequence or one more evaluation ends the run. Before that the allocator frees what it kept and asks the
    driver again, which waits for the GPU.

How the saving is worked out
    It costs no time by itself, so no share is claimed.

How to fix
    A smaller batch with accumulation, activation checkpointing, bfloat16, a sharded or 8-bit optimizer.

When it is wrong
    When all inputs have one size and the run has shown that they fit.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked

NEEDS = ("trainer", "steps", "gpu")

NEARLY_FULL, FULL = 0.92, 0.97
"""Of the card's memory; the catalogue's figures, TraceML's thresholds."""
RESERVE = 0.85
"""Below this share of the card in use at once, what fills it is torch's reserve, which it can use at any time."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look at how full the run's GPUs are."""
    allocator = evidence.allocator(trainer)
    own = [gpu for gpu in evidence.gpus if gpu.of_run] or list(evidence.gpus)
    known = [
        (gpu.memory_used_bytes / gpu.memory_total_bytes, gpu)
        for gpu in own
        if gpu.memory_used_bytes is not None and gpu.memory_total_bytes
    ]
    if not known:
        return NotChecked("How full the GPU's memory is was not sampled.")
    used, gpu = max(known, key=lambda pair: pair[0])
    words = f"{units.share(used)} of the {units.size(gpu.memory_total_bytes)} of {gpu.name} are used."
    if used < NEARLY_FULL:
        return Clear(words)
    if allocator is not None and allocator.total and allocator.peak_allocated.height:
        peak = float(allocator.peak_allocated["value"].max() or 0.0)  # type: ignore[arg-type]
        if peak < RESERVE * allocator.total:
            return Clear(
                f"{words} At most {units.size(peak)} were in use at once: the rest is torch's reserve."
            )
        words += f" At most {units.size(peak)} were in use at once."
    return [
        Finding(
            title=f"{gpu.name} has {units.share(1.0 - used)} of its memory left.",
            share=0.0,
            saving=(1.0, 1.0),
            evidence=(words,),
            advice="Before longer inputs or a larger model: a smaller batch with accumulation, activation "
            "checkpointing (torch.utils.checkpoint), bfloat16, or an optimizer with smaller state.",
            confidence="measured" if allocator is not None else "inferred",
            at_least="minor" if used >= FULL else "note",
        )
    ]
