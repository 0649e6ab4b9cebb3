"""Collectives run while the GPU computes nothing.

What it finds
    Time, in a record of the GPU's kernels, during which kernels of NCCL or RCCL ran and no other kernel: 2 % of the
    recorded time or more.

Why it costs
    Gradients can be exchanged while the rest of the backward pass is computed. What is exchanged alone makes the step
    longer. A collective also lasts until the slowest rank has come: a part of this time may be waiting for another one.

How the saving is worked out
    Measured: at best all of that time goes, at worst a quarter of it: the last bucket has nothing to hide behind.

How to fix
    In DDP: gradient_as_bucket_view, other bucket sizes (bucket_cap_mb), static_graph, no_sync() for steps that
    accumulate, bfloat16 compression hooks. In FSDP: prefetch of the next shards. Faster links, fewer ranks per step.

When it is wrong
    When another rank is late: its own cause is the thing to mend. The ranks side by side tell which.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.intervals import length
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import recorded, window
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("trainer", "kernels")

LEAST_GAP = 0.1
"""Of the exposed time, from which what stands before the optimizer is worth a word."""

LEAST_HIDDEN = 0.25
"""Of the exposed time, what can be hidden at worst."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for collectives that no other kernel hides."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    collectives = gpu.events.table.filter(pl.col("nccl"))
    exposed = length(gpu.exposed_collectives)
    share = exposed / gpu.window_ns
    if share < QUIET_SHARE:
        return Clear(
            f"{units.counted(collectives.height, 'collective')} ran alone {units.share(share)} of the recorded time."
        )
    return [
        Finding(
            title=f"{SHARE} of the GPU's time goes to collectives that nothing is computed beside.",
            share=share,
            saving=(1.0 - share, 1.0 - share * LEAST_HIDDEN),
            evidence=(
                f"Seen in {window(gpu)}: {units.counted(collectives.height, 'collective')} took "
                f"{units.duration(gpu.collective_ns)}, {units.duration(exposed)} of it alone.",
                *_between(evidence.exchange_gap_ns(gpu, trainer), exposed),
            ),
            advice="Let more of the exchange run beside the backward pass (bucket sizes, gradient_as_bucket_view, "
            "no_sync() while accumulating, FSDP's prefetching), and see whether one rank is late.",
            verdict="communication-bound",
            of_window=True,
        )
    ]


def _between(gap_ns: int | None, exposed_ns: int) -> tuple[str, ...]:
    """Return how much of it stands between the backward pass and the optimizer, the usual place."""
    if gap_ns is None or gap_ns < LEAST_GAP * exposed_ns:
        return ()
    return (
        f"{units.share(min(1.0, gap_ns / exposed_ns))} of that stands between the end of the backward pass and the "
        "optimizer, which waits for it.",
    )
