"""The machine reads memory back from swap while the training runs.

What it finds
    Pages read back from swap during the training loop, at least 1 MiB per second on average.

Why it costs
    A page on disk takes as long as a thousand or more memory accesses, and the thread that needs it waits.

How the gain is estimated
    If the kernel reports memory pressure, the share of the time in which all runnable tasks waited for memory is
    measured, and at best all of it disappears. Otherwise the cost is unknown, and none is claimed.

How to fix
    Use less memory: fewer workers, a smaller prefetch_factor, data in arrays or memory maps instead of Python lists.
    Or use a machine with more memory.

When it is wrong
    When another program on the machine causes the swapping.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.loop_figures import mean_in_loop, mean_step_ns
from perfwrap.measures.account.what_if import saving
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, NotChecked, Option

NEEDS = ("host", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_bytes_per_s: int = 1 << 20
    """Bytes per second read from swap: 256 pages, at 0.1 ms each (a solid-state disk) 2.5 % of a thread's time."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check how much was read back from swap during the loop."""
    swapped = mean_in_loop(evidence, trainer, "host", "swap_in_bytes_per_s")
    if swapped is None:
        if mean_in_loop(evidence, trainer, "host", "memory_available_bytes") is None:
            return NotChecked("Memory use of the machine was not recorded during the loop.")
        return Clear("The machine has no swap space.")
    if swapped < limits.min_bytes_per_s:
        return Clear(f"{units.size(swapped)} per second were read back from swap.")
    stalled = mean_in_loop(evidence, trainer, "host", "memory_stall_share") or 0.0
    step_ns = mean_step_ns(evidence, trainer)
    cost = f", which costs up to {SHARE} of the training loop." if stalled else "; the cost is unknown."
    return [
        Finding(
            title=f"{units.size(swapped)} of memory per second are read back from swap{cost}",
            share=stalled,
            evidence=_words(evidence, trainer),
            options=(
                Option(
                    "Use less memory: fewer workers, a smaller prefetch_factor, data in arrays instead of Python "
                    "lists.",
                    saving(step_ns, 0.0, stalled * step_ns),
                ),
            ),
            verdict="memory-bound",
            confidence="inferred",
            health=True,
        )
    ]


def _words(evidence: Evidence, trainer: Trainer) -> tuple[str, ...]:
    """Return how full the memory is."""
    used = mean_in_loop(evidence, trainer, "host", "swap_used_bytes")
    free = mean_in_loop(evidence, trainer, "host", "memory_available_bytes")
    return (f"{units.size(used)} are in swap space; {units.size(free)} of memory are available.",)
