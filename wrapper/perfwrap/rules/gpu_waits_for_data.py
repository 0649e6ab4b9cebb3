"""The GPU is idle while the training thread waits for the next batch.

What it finds
    Idle time of the GPU, in a record of its kernels, during which the training thread waited for a batch: 2 % of
    the recorded time or more.

Why it costs
    A wait for a batch costs nothing while the GPU still has work to do. This is the part of the waits in which it had
    none.

How the saving is worked out
    Measured: the idle time that lies inside of a wait for a batch. Where only the program's own marks of its steps
    were recorded, it is inferred: the idle time between two marked steps in which nothing else was recorded, when the
    step that follows begins by bringing something to the GPU.

How to fix
    Make batches in more workers (num_workers), make them faster (decode less, cache, transform on the GPU), keep
    workers alive between epochs, prefetch further ahead. The findings about the DataLoader say which of these.

When it is wrong
    When inferred, something else between the steps that leaves no trace (a sleep, a message to a server). In a record
    of the first steps only, where the first batch is always slow.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import without
from perfwrap.rules.kernel_record import window, with_blame
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("trainer", "kernels")


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for idle time that waits for batches explain."""
    gpu = with_blame(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    share = gpu.idle_shares.get("data", 0.0)
    if share < QUIET_SHARE:
        return Clear(f"The GPU waited for data {units.share(share)} of the recorded time.")
    waits = gpu.idle.filter(pl.col("blame") == "data")
    inferred = bool(waits["inferred"].any())
    idle = 1.0 - gpu.busy_share
    evidence_texts = [
        f"In {window(gpu)}, it was idle {units.share(idle)}, {units.share(share / idle)} of that for want of data."
    ]
    if inferred:
        evidence_texts.append(
            "Inferred: between the marked steps nothing else was recorded, and each step then begins by bringing "
            "its batch to the GPU."
        )
    return [
        Finding(
            title=f"The GPU is idle {SHARE} of the time because the next batch is not there yet.",
            share=share,
            saving=without(share),
            evidence=tuple(evidence_texts),
            advice="Make batches faster or in more workers: num_workers, persistent_workers, prefetch_factor, "
            "cheaper transforms, or a faster store for the data.",
            verdict="data-bound",
            experiment="cached-batch",
            confidence="inferred" if inferred else "measured",
            claims=pl.col("part") == "data",
            of_window=True,
        )
    ]
