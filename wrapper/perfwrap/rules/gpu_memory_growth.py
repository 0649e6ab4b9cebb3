"""GPU memory that torch has allocated grows from step to step.

What it finds
    Memory allocated at the ends of steps, as torch's own allocator counts it, that rises by 64 MiB or more and by 5 %
    or more during the training loop and goes on rising to its end.

Why it costs
    The run ends with an out-of-memory error, and until then the allocator has ever less room to place blocks in.

How the saving is worked out
    It costs no time until memory runs out, so no share is claimed; the finding says when that would be.

How to fix
    Keep numbers instead of tensors: total += loss.item(), outputs.append(output.detach().cpu()). Evaluation belongs
    under torch.no_grad() or torch.inference_mode().

When it is wrong
    When inputs get larger on purpose during the run (a curriculum of longer sequences).
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.growth import enough, find_growth
from perfwrap.measures.trainers import Trainer
from perfwrap.rules import kept
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, locate, place

NEEDS = ("trainer", "steps", "allocator")

LEAST_BYTES = 64 << 20
LEAST_SHARE = 0.05
"""Of what was allocated at the beginning of the loop; at the ends of steps it hardly changes in a healthy one."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look at what is allocated at the ends of steps."""
    allocator, account = evidence.allocator(trainer), evidence.account(trainer)
    if allocator is None:
        return NotChecked(
            "torch's allocator of a GPU told nothing: none was used, or several processes share one."
        )
    if not enough(allocator.allocated, account.start, account.end):
        # Only changes are written: a series that hardly has any does not grow.
        return Clear("What is allocated on the GPU hardly changed between the ends of steps.")
    growth = find_growth(allocator.allocated, account.start, account.end)
    if growth is None or growth.total < max(LEAST_BYTES, LEAST_SHARE * growth.first):
        return Clear("What is allocated on the GPU at the ends of steps does not grow.")
    graphs = evidence.kept_graphs(trainer)
    line = graphs[0].where if graphs else None
    words = [
        f"From {units.size(growth.first)} to {units.size(growth.first + growth.total)} within the training loop.",
        *kept.words(graphs),
    ]
    if allocator.total is not None:
        left = max(0.0, allocator.total - growth.first - growth.total)
        words.append(
            f"At this pace the rest of the card lasts for {units.duration(left / growth.per_s * 1e9)}."
        )
    return [
        Finding(
            title=f"Allocated GPU memory grows by {units.size(growth.per_s * 3_600)} per hour"
            + (f": graphs made at {place(line, '')} are kept." if line else "."),
            share=0.0,
            saving=(1.0, 1.0),
            evidence=tuple(words),
            advice=kept.advice(graphs)
            if graphs
            else "Look for tensors that the loop keeps: lists of losses and outputs, caches, hooks. Keep loss.item() "
            "or output.detach().cpu() instead.",
            location=locate(line),
            health=True,
            at_least="major",
        )
    ]
