"""The GPU copies tensors within its own memory, to change their type or their order.

What it finds
    Kernels that only change the type of tensors (aten::to, aten::_to_copy, aten::copy_), in a record of the GPU's
    kernels: 5 % of the recorded time or more. Or kernels that only copy, with those that put elements in another order
    (contiguous(), clone()): 10 % or more. Changes of layout around convolutions are told apart (layout_conversions).

Why it costs
    Each such kernel reads and writes a whole tensor and computes nothing.

How the saving is worked out
    Inferred: at best all of that time goes, at worst half of it: autocast has to cast something.

How to fix
    Keep a tensor in one type from where it is made to where it is used; put one autocast scope around the whole forward
    pass; keep weights in bfloat16 where the optimizer allows it; torch.compile fuses casts with their neighbours.
    Write permute() and transpose() so that no contiguous() is needed after them.

When it is wrong
    Where mixed precision saves more in the products than its casts take.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu_activity import GpuActivity
from perfwrap.measures.kernel_marks import CAST, MOVE, marked, of_kernels
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import without
from perfwrap.rules.kernel_record import recorded, short, window
from perfwrap.rules.model import MAJOR_SHARE, MINOR_SHARE, SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("trainer", "kernels")

CAST_SHARE = MINOR_SHARE
"""Of the recorded time; the catalogue's figure for casts."""
COPY_SHARE = MAJOR_SHARE
"""Of the recorded time, for copies of both kinds together: some contiguous() is natural."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for kernels that only copy."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    rows = of_kernels(gpu).filter(marked(f"{CAST}|{MOVE}"))
    casts = rows.filter(marked(CAST))
    cast, copy = (int(found["ns"].sum()) / gpu.window_ns for found in (casts, rows))
    if cast < CAST_SHARE and copy < COPY_SHARE:
        return Clear(
            f"{units.share(cast)} of the recorded time goes to changes of type, {units.share(copy)} to all copies by "
            "kernels."
        )
    return [_finding(gpu, rows, min(1.0, cast), min(1.0, copy))]


def _finding(gpu: GpuActivity, rows: pl.DataFrame, cast: float, copy: float) -> Finding:
    """Return the finding about the casts, or about all copies where casts are few."""
    mostly = cast >= CAST_SHARE
    share = cast if mostly else copy
    what = "change the type of tensors" if mostly else "copy tensors within its memory"
    largest = rows.group_by("name").agg(pl.col("ns").sum()).sort("ns", "name", descending=[True, False])
    return Finding(
        title=f"{SHARE} of the GPU's time goes to kernels that only {what}.",
        share=share,
        saving=without(share),
        evidence=(
            f"Seen in {window(gpu)}: {units.counted(rows.height, 'copy', 'copies')} by kernels, "
            f"{units.share(copy)} of the time; {units.share(cast)} change the type.",
            f"The largest: {short(largest['name'][0])}, {units.duration(largest['ns'][0])}.",
        ),
        advice="Keep tensors in one type from where they are made to where they are used, with one autocast scope "
        "around the forward pass; avoid contiguous() after permute(); torch.compile fuses what is left.",
        experiment="bf16" if mostly else "compile",
        confidence="inferred",
        of_window=True,
    )
