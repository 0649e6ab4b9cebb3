"""Matrix products have sizes that tensor cores do not like.

What it finds
    Kernels on tensor cores of the kinds that libraries take when sizes are no multiples of 16 bytes (8 elements of 16
    bits, 4 of TF32): their names say how many elements they read at once. When what would be saved is 2 % of the
    recorded time or more, which is so from 9 % of it in such kernels on. Where sizes were recorded, they are named.

Why it costs
    Aligned kernels read 16 bytes at once, with fewer instructions for addresses (CUTLASS's authors, its issue 75); the
    others read fewer elements at once.

How the saving is worked out
    Inferred: these kernels become 1.3 to 3 times as fast. The share of the finding is what goes at 1.3 times.

How to fix
    Pad the size that is named to the next multiple of 8, or better 64: the vocabulary, the number of classes, the
    sequence's length, the number of features. A last batch that is smaller can be dropped (drop_last=True).

When it is wrong
    Where the product is limited by memory anyway, padding gains less. Kernels whose names do not tell (nvjet, Triton,
    AMD's) are not judged.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu_activity import GpuActivity
from perfwrap.measures.kernel_marks import misaligned, of_kernels
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import recorded, short, window
from perfwrap.rules.model import QUIET_SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("trainer", "kernels")

FASTER = (3.0, 1.3)
"""How many times as fast the kernels become, at best and at worst: a range of ours, until an experiment tells."""

MULTIPLE = 8
"""Batch sizes that are no multiples of it are named beside the finding."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for kernels that read few elements at once."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    kernels = of_kernels(gpu)
    tensor = kernels.filter(pl.col("tensor").fill_null(False))
    if tensor.is_empty():
        return Clear("No kernel is known to run on tensor cores, so none wants aligned sizes.")
    rows = tensor.filter(misaligned())
    part = min(1.0, int(rows["ns"].sum()) / gpu.window_ns)
    best, worst = (1.0 - part * (1.0 - 1.0 / factor) for factor in FASTER)
    if 1.0 - worst < QUIET_SHARE:
        return Clear(
            f"Kernels for sizes that are not aligned take {units.share(part)} of the time, as far as names tell."
        )
    return [
        Finding(
            title=f"{units.share(part)} of the GPU's time goes to matrix products whose sizes are not aligned.",
            share=1.0 - worst,
            saving=(best, worst),
            evidence=(
                f"Seen in {window(gpu)}: {units.counted(rows.height, 'kernel')}, mostly "
                f"{short(_kind(str(rows['name'].mode().sort()[0])))}.",
                *_sizes(evidence, gpu),
                *_batches(evidence, trainer),
            ),
            advice="Pad the sizes to multiples of 8 (16-bit types) or 4 (TF32), better of 64: features, classes, "
            "vocabulary, sequence length.",
            confidence="inferred",
            of_window=True,
        )
    ]


def _kind(name: str) -> str:
    """Return the part of the name that tells the alignment."""
    start = name.find("<cutlass")
    return name[start + 1 :].split(">")[0] if start >= 0 else name


def _sizes(evidence: Evidence, gpu: GpuActivity) -> tuple[str, ...]:
    """Return the products with such sizes that take most time, where sizes were recorded."""
    work = evidence.matrix_work(gpu)
    if work is None:
        return ("Which sizes they are needs their record: `perfwrap run --window-detail shapes`.",)
    rows = work.table.filter(pl.col("unaligned")).head(2)
    named = [f"{row['op']} of {row['sizes']}" for row in rows.iter_rows(named=True)]
    return (f"The largest of them: {'; '.join(named)}.",) if named else ()


def _batches(evidence: Evidence, trainer: Trainer) -> tuple[str, ...]:
    """Return the batch sizes of loaders that are not aligned."""
    facts = evidence.facts(trainer.process).items()
    found = [value for key, value in facts if key.endswith("/batch_size") and value.isdigit()]
    odd = [value for value in found if int(value) % MULTIPLE]
    return (f"A DataLoader's batch size is {odd[0]}, no multiple of {MULTIPLE}.",) if odd else ()
