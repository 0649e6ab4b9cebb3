"""The GPU copies tensors within its own memory to change their type or layout.

What it finds
    Kernels that only change the type of tensors (aten::to, aten::_to_copy, aten::copy_), in a record of the GPU's
    kernels: at least 5 % of the recorded time. Or all kernels that only copy, including those that reorder elements
    (contiguous(), clone()): at least 10 %. Layout changes around convolutions are separate (layout_conversions).

Why it costs
    Each such kernel reads and writes a whole tensor and computes nothing.

How the gain is estimated
    Estimated: at best all of that time disappears, at worst half, because autocast must cast something.

How to fix
    Keep a tensor in one type from its creation to its use; put one autocast scope around the whole forward pass; keep
    weights in bfloat16 if the optimizer allows it; torch.compile fuses casts with neighboring operations. Arrange
    permute() and transpose() so that no contiguous() is needed after them.

When it is wrong
    When mixed precision saves more in the matrix products than its casts cost.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.what_if import without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import GpuActivity
from perfwrap.measures.kernels.kernel_marks import CAST, MOVE, marked, of_kernels
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import limiting, loop_share, short, window
from perfwrap.rules.levers import BFLOAT16_AUTOCAST, Levers, find_levers
from perfwrap.rules.model import MAJOR_SHARE, MINOR_SHARE, SHARE, Answer, Clear, Finding, Option, Scope

NEEDS = ("trainer", "kernels")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    cast_share: float = MINOR_SHARE
    """Share of the recorded time, for casts."""
    copy_share: float = MAJOR_SHARE
    """Share of the recorded time, for all copies together: some contiguous() calls are normal."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for kernels that only copy."""
    gpu = limiting(evidence, trainer)
    if not isinstance(gpu, GpuActivity):
        return gpu
    rows = of_kernels(gpu).filter(marked(f"{CAST}|{MOVE}"))
    casts = rows.filter(marked(CAST))
    cast, copy = (loop_share(evidence, trainer, gpu, int(found["ns"].sum())) for found in (casts, rows))
    if cast < limits.cast_share and copy < limits.copy_share:
        return Clear(
            f"Type changes take {units.share(cast)} of the recorded time, all copies by kernels "
            f"{units.share(copy)}."
        )
    return [_finding(evidence.get(find_levers, trainer), gpu, rows, cast, copy, limits)]


def _finding(
    levers: Levers, gpu: GpuActivity, rows: pl.DataFrame, cast: float, copy: float, limits: Limits
) -> Finding:
    """Return the finding about the casts, or about all copies if there are few casts."""
    mostly = cast >= limits.cast_share
    share = cast if mostly else copy
    what = "change the type of tensors" if mostly else "copy tensors within its memory"
    largest = rows.group_by("name").agg(pl.col("ns").sum()).sort("ns", "name", descending=[True, False])
    return Finding(
        title=f"{SHARE} of the GPU's time is kernels that only {what}.",
        share=share,
        evidence=(
            f"In {window(gpu)}: {units.counted(rows.height, 'copy', 'copies')} by kernels, "
            f"{units.share(copy)} of the time; {units.share(cast)} for type changes.",
            f"The largest: {short(largest['name'][0])}, {units.duration(largest['ns'][0])}.",
        ),
        options=_options(levers, share, mostly),
        confidence="inferred",
        scope=Scope.WINDOW,
    )


def _options(levers: Levers, share: float, mostly: bool) -> tuple[Option, ...]:
    """Return the ways to copy less; ``mostly`` says that most of it changes types."""
    scope = Option(
        "Keep tensors in one type from their creation to their use, with one autocast scope around the forward pass.",
        without(share),
        f"{units.share(share)} of the GPU's time",
        "bf16" if mostly and levers.precision == BFLOAT16_AUTOCAST else None,
        "Avoid contiguous() after permute().",
    )
    fused = Option(
        "Call torch.compile(model), which fuses such copies.", without(share), experiment="compile"
    )
    return (scope, fused) if levers.compiling else (scope,)
