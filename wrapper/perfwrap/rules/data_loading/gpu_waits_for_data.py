"""The GPU is idle while the training thread waits for the next batch.

What it finds
    Idle time of the GPU, in a record of its kernels, while the training thread waited for a batch: at least 2 % of the
    recorded time.

Why it costs
    A wait for a batch costs nothing while the GPU still has work. This is the part of the waits in which it had none.

How the gain is estimated
    Measured: the GPU idle time inside waits for a batch. If only the program's own step marks were recorded, it is
    estimated: the idle time between two marked steps in which nothing else was recorded, if the next step starts with a
    copy to the GPU.

How to fix
    Use more workers (num_workers), make batches cheaper (decode less, cache, transform on the GPU), keep workers alive
    between epochs, prefetch more. The findings about the DataLoader say which of these helps.

When it is wrong
    When estimated: other activity between the steps that was not recorded (a sleep, a request to a server). In a
    recording of the first steps only, where the first batch is always slow.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.what_if import without
from perfwrap.measures.data_loading.loaders import find_loaders
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.ordinary_step import find_ordinary_step
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import window, with_blame
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, NotChecked, Option, Scope

NEEDS = ("trainer", "kernels")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for GPU idle time that waits for batches explain."""
    gpu = with_blame(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    step = evidence.get(find_ordinary_step, trainer)
    share = step.idle.get("data", 0.0) if step else 0.0
    if share < limits.min_reported_share:
        return Clear(f"The GPU waits for data {units.share(share)} of the recorded time.")
    waits = gpu.idle.filter(pl.col("blame") == "data")
    inferred = bool(waits["inferred"].any())
    idle = 1.0 - step.busy_share if step else 1.0
    evidence_texts = [
        f"In {window(gpu)}, it was idle {units.share(idle)}; {units.share(share / idle)} of that waiting for data."
    ]
    if inferred:
        evidence_texts.append(
            "Estimated: nothing else was recorded between the marked steps, and each step then starts with a copy of "
            "its batch to the GPU."
        )
    words = f"{units.share(share)} of the time the GPU waits for data"
    loaders = [loader for loader in evidence.get(find_loaders, trainer) if loader.training]
    restarts = not loaders or any(not loader.persistent_workers and loader.epochs > 1 for loader in loaders)
    persistent = "persistent_workers, " if restarts else ""
    workers = Option(
        f"Use more workers: num_workers, {persistent}prefetch_factor.", without(share), words, "cached-batch"
    )
    cheaper = Option("Make batches cheaper: cheaper transforms, or faster storage.", without(share), words)
    return [
        Finding(
            title=f"The GPU is idle {SHARE} of the time because it waits for the next batch.",
            share=share,
            evidence=tuple(evidence_texts),
            options=(cheaper,) if any(loader.of_daemon for loader in loaders) else (workers, cheaper),
            verdict="data-bound",
            confidence="inferred" if inferred else "measured",
            claims=pl.col("part") == "data",
            scope=Scope.WINDOW,
        )
    ]
