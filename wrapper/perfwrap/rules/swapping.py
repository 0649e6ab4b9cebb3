"""The machine fetches memory back from swap space while the training runs.

What it finds
    Pages that were read back from swap during the training loop, a megabyte per second or more on average.

Why it costs
    A page that is needed and lies on a disk takes the time of a thousand and more accesses to memory, and the thread
    that needs it stands still.

How the saving is worked out
    Where the kernel counts memory pressure, the share of the time in which everything that wanted to run waited for
    memory is measured, and at best all of it goes. Elsewhere the cost is not known, and none is claimed.

How to fix
    Use less memory: fewer workers, a smaller prefetch_factor, data in arrays or memory maps instead of Python lists;
    or run on a machine with more.

When it is wrong
    When another program of the machine is what swaps.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import mean_step_ns
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import saving
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("host", "steady_steps")

LEAST_BYTES_PER_S = 1 << 20
"""Bytes per second that come back from swap from which it is told: 256 pages, at a tenth of a millisecond each (a
solid-state disk) 2.5 % of a thread's time."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look at what came back from swap during the loop."""
    swapped = evidence.mean_in_loop(trainer, "host", "swap_in_bytes_per_s")
    if swapped is None:
        if evidence.mean_in_loop(trainer, "host", "memory_available_bytes") is None:
            return NotChecked("The machine's memory was not sampled during the loop.")
        return Clear("The machine has no swap space.")
    if swapped < LEAST_BYTES_PER_S:
        return Clear(f"{units.size(swapped)} per second came back from swap.")
    stalled = evidence.mean_in_loop(trainer, "host", "memory_stall_share") or 0.0
    step_ns = mean_step_ns(evidence, trainer)
    cost = (
        f", which costs up to {SHARE} of the training loop." if stalled else "; what that costs is not known."
    )
    return [
        Finding(
            title=f"{units.size(swapped)} of memory per second come back from swap{cost}",
            share=stalled,
            saving=saving(step_ns, 0.0, stalled * step_ns),
            evidence=_words(evidence, trainer),
            advice="Use less memory: fewer workers, a smaller prefetch_factor, data in arrays instead of Python lists.",
            verdict="memory-bound",
            confidence="inferred",
            health=True,
        )
    ]


def _words(evidence: Evidence, trainer: Trainer) -> tuple[str, ...]:
    """Return how full the memory was."""
    used = evidence.mean_in_loop(trainer, "host", "swap_used_bytes")
    free = evidence.mean_in_loop(trainer, "host", "memory_available_bytes")
    return (f"{units.size(used)} lie in swap space; {units.size(free)} of memory are available.",)
