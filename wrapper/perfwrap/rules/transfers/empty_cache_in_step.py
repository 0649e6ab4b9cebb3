"""The loop calls torch.cuda.empty_cache() again and again.

What it finds
    Calls of torch.cuda.empty_cache() in at least one of ten steps of the training loop.

Why it costs
    The call returns memory to the driver, which waits for the GPU; the next step must allocate it again, which is also
    slow. No tensor gets memory that it would not have got without the call.

How the gain is estimated
    Measured: the time of the calls, or the GPU's idle time while the driver frees and allocates, if its kernels were
    recorded. Without that record, the time to allocate again is unknown; it is taken as at most that of the calls.

How to fix
    Remove the call. Against fragmentation, set PYTORCH_ALLOC_CONF=expandable_segments:True.

When it is wrong
    When another process on the same GPU needs the memory between the steps.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.what_if import without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.ordinary_step import find_ordinary_step
from perfwrap.measures.loop.cache_calls import find_cache_calls
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, Option, locate, place

NEEDS = ("trainer", "steady_steps", "recorder")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_calls_per_step: float = 0.1
    """A call per epoch does no harm."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Count the calls in the steady loop."""
    calls = evidence.get(find_cache_calls, trainer)
    if calls.per_step < limits.min_calls_per_step:
        return Clear(f"torch.cuda.empty_cache() was called {units.counted(calls.count, 'time')} in the loop.")
    step = evidence.get(find_ordinary_step, trainer)
    allocating = step.idle.get("allocation", 0.0) if step else 0.0
    share = max(calls.share, allocating)
    again = "with" if allocating else "plus"
    return [
        Finding(
            title=f"torch.cuda.empty_cache() at {place(calls.line, 'one line')} takes {SHARE} of the training loop, "
            f"{again} the time to allocate the memory again.",
            share=share,
            evidence=(
                f"{units.counted(calls.count, 'call')}, {units.number(calls.per_step)} per step, "
                f"{units.duration(calls.duration_ns / max(1, calls.count))} each.",
                *(_idle(allocating) if allocating else ()),
            ),
            options=(
                Option(
                    f"Remove the call at {place(calls.line, 'that line')}.",
                    without(share) if allocating else (max(0.0, 1.0 - 2 * share), 1.0 - share),
                    experiment="no-empty-cache",
                    details="Against fragmentation, set PYTORCH_ALLOC_CONF=expandable_segments:True.",
                ),
            ),
            verdict="memory-bound",
            location=locate(calls.line),
        )
    ]


def _idle(share: float) -> tuple[str, ...]:
    """Return the sentence about the GPU's idle time while the driver allocates and frees."""
    return (f"The GPU is idle {units.share(share)} of the time while the driver allocates and frees memory.",)
