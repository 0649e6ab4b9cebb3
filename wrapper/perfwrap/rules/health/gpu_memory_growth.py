"""Allocated GPU memory grows from step to step.

What it finds
    Memory allocated at the ends of steps, from torch's allocator, that grows by at least 64 MiB and 5 % during the
    training loop and is still growing at its end.

Why it costs
    The run ends with an out-of-memory error; until then the allocator has less and less free memory.

How the gain is estimated
    It costs no time until memory runs out, so no share is claimed; the finding says when that will be.

How to fix
    Keep numbers instead of tensors: total += loss.item(), outputs.append(output.detach().cpu()). Evaluate under
    torch.no_grad() or torch.inference_mode().

When it is wrong
    When inputs get larger on purpose during the run (a curriculum of longer sequences).
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.health.growth import enough, find_growth
from perfwrap.measures.health.kept_graphs import find_kept_graphs
from perfwrap.measures.health.memory import find_allocator
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.health import _kept_graphs as kept
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option, locate, place

NEEDS = ("trainer", "steps", "allocator")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_bytes: int = 64 << 20
    """Growth during the loop from which it is reported."""
    min_share: float = 0.05
    """Share of the memory allocated at the start of the loop; in a healthy run it is constant at the ends of steps."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check the memory allocated at the ends of steps."""
    allocator, account = evidence.get(find_allocator, trainer), evidence.get(find_account, trainer)
    if allocator is None:
        return NotChecked("No GPU memory data: no GPU was used, or several processes share it.")
    if not enough(allocator.allocated, account.start, account.end):
        # Only changes are recorded: a series with hardly any does not grow.
        return Clear("Allocated GPU memory is nearly constant at the ends of steps.")
    growth = find_growth(allocator.allocated, account.start, account.end)
    if growth is None or growth.total < max(limits.min_bytes, limits.min_share * growth.first):
        return Clear("Allocated GPU memory does not grow at the ends of steps.")
    graphs = evidence.get(find_kept_graphs, trainer)
    line = graphs[0].where if graphs else None
    words = [
        f"From {units.size(growth.first)} to {units.size(growth.first + growth.total)} within the training loop.",
        *kept.words(graphs),
    ]
    if allocator.total is not None:
        left = max(0.0, allocator.total - growth.first - growth.total)
        words.append(
            f"At this rate the free GPU memory lasts for {units.duration(left / growth.per_s * 1e9)}."
        )
    return [
        Finding(
            title=f"Allocated GPU memory grows by {units.size(growth.per_s * 3_600)} per hour"
            + (f": graphs made at {place(line, '')} are kept." if line else "."),
            share=0.0,
            evidence=tuple(words),
            options=(
                (Option(kept.advice(graphs), (1.0, 1.0)),)
                if graphs
                else (
                    Option("Keep loss.item() or output.detach().cpu() instead of tensors.", (1.0, 1.0)),
                    Option("Look for lists of losses and outputs, caches and hooks in the loop.", (1.0, 1.0)),
                )
            ),
            location=locate(line),
            health=True,
            min_severity="major",
        )
    ]
