"""Matrix products have sizes that are slow on tensor cores.

What it finds
    Tensor core kernels that libraries use when sizes are not multiples of 16 bytes (8 elements of 16 bits, 4 of TF32):
    their names say how many elements they read at once. Reported if the gain is at least 2 % of the recorded time,
    which needs about 9 % of it in such kernels. If sizes were recorded, they are named.

Why it costs
    Aligned kernels read 16 bytes at once, with fewer address instructions (authors of CUTLASS, its issue 75); the
    others read fewer elements at once.

How the gain is estimated
    Estimated: these kernels get 1.3 to 3 times as fast. The share of the finding is the gain at 1.3 times.

How to fix
    Pad the named size to the next multiple of 8, or better 64: vocabulary, number of classes, sequence length, number
    of features. A smaller last batch can be dropped (drop_last=True).

When it is wrong
    If the product is memory-bound anyway, padding gains less. Kernels whose names do not show this (nvjet, Triton, AMD)
    are not checked.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.kernels.gpu_activity import GpuActivity
from perfwrap.measures.kernels.kernel_marks import misaligned, of_kernels
from perfwrap.measures.kernels.matrix_work import find_matrix_work
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import limiting, loop_share, short, window
from perfwrap.rules.model import MIN_REPORTED_SHARE, Answer, Clear, Finding, Option, Scope

NEEDS = ("trainer", "kernels")

SPEEDUPS = (3.0, 1.3)
"""Speedups of the kernels, best and worst: our range, until an experiment measures it."""


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    multiple: int = 8
    """Batch sizes that are not multiples of it are mentioned."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for kernels that read few elements at once."""
    gpu = limiting(evidence, trainer)
    if not isinstance(gpu, GpuActivity):
        return gpu
    kernels = of_kernels(gpu)
    tensor = kernels.filter(pl.col("tensor").fill_null(False))
    if tensor.is_empty():
        return Clear("No kernel is known to use tensor cores, so none needs aligned sizes.")
    rows = tensor.filter(misaligned())
    part = loop_share(evidence, trainer, gpu, int(rows["ns"].sum()))
    best, worst = (1.0 - part * (1.0 - 1.0 / factor) for factor in SPEEDUPS)
    if 1.0 - worst < limits.min_reported_share:
        return Clear(
            f"Kernels for unaligned sizes take {units.share(part)} of the time, according to their names."
        )
    return [
        Finding(
            title=f"{units.share(part)} of the GPU's time is matrix products with unaligned sizes.",
            share=1.0 - worst,
            evidence=(
                f"In {window(gpu)}: {units.counted(rows.height, 'kernel')}, mostly "
                f"{short(_kind(str(rows['name'].mode().sort()[0])))}.",
                *_sizes(evidence, gpu),
                *_batches(evidence, trainer, limits),
            ),
            options=(
                Option(
                    "Pad the sizes to multiples of 8 (16-bit types) or 4 (TF32), better 64: features, classes, "
                    "vocabulary, sequence length.",
                    (best, worst),
                ),
            ),
            confidence="inferred",
            scope=Scope.WINDOW,
        )
    ]


def _kind(name: str) -> str:
    """Return the part of the name that shows the alignment."""
    start = name.find("<cutlass")
    return name[start + 1 :].split(">")[0] if start >= 0 else name


def _sizes(evidence: Evidence, gpu: GpuActivity) -> tuple[str, ...]:
    """Return the products with such sizes that take most time, if sizes were recorded."""
    work = evidence.get(find_matrix_work, gpu)
    if work is None:
        return ("To see the sizes, record them: `perfwrap run --window-detail shapes`.",)
    rows = work.table.filter(pl.col("unaligned")).head(2)
    named = [f"{row['op']} of {row['sizes']}" for row in rows.iter_rows(named=True)]
    return (f"The largest: {'; '.join(named)}.",) if named else ()


def _batches(evidence: Evidence, trainer: Trainer, limits: Limits) -> tuple[str, ...]:
    """Return the unaligned batch sizes of DataLoaders."""
    facts = evidence.get(find_facts, trainer.process).items()
    found = [value for key, value in facts if key.endswith("/batch_size") and value.isdecimal()]
    odd = [value for value in found if int(value) % limits.multiple]
    return (f"A DataLoader's batch size is {odd[0]}, not a multiple of {limits.multiple}.",) if odd else ()
