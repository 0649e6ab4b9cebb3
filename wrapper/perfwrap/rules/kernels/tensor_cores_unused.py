"""Matrix products and convolutions do not use the GPU's tensor cores.

What it finds
    Kernels for matrix products, convolutions and attention that, by their names, do not use tensor cores, in a record
    of the GPU's kernels: at least half of the time of all such kernels with known names, and at least 5 % of the
    recorded time.

Why it costs
    Tensor cores compute the same products several times as fast: according to NVIDIA 8 times at the peak on a V100
    (fp16 against fp32) and on an A100 (TF32 against fp32), but only twice on GeForce cards from the RTX 30 on (16 bits
    against fp32; TF32 gains nothing there).

How the gain is estimated
    Estimated: these kernels get 1.5 to 4 times as fast (our range), limited by the ratio of the GPU's peaks if known.
    The share of the finding is the gain at 1.5 times; the rest of that time is not wasted.

How to fix
    From Ampere on: torch.set_float32_matmul_precision("high") (TF32), then torch.autocast with bfloat16; on GeForce
    cards and the L40 only the latter. On Volta and Turing: torch.autocast with float16 and a GradScaler. Use sizes that
    are multiples of 8.

When it is wrong
    When the program needs full fp32 precision. Kernels with other names (Triton, hand-written ones) are unknown and are
    left out.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import GpuActivity
from perfwrap.measures.kernels.gpu_generation import AMPERE, VOLTA, major_capability
from perfwrap.measures.kernels.gpu_peaks import Peaks, peaks_of
from perfwrap.measures.kernels.kernel_classes import MATRIX
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import limiting, loop_share, mfu, short, window
from perfwrap.rules.levers import Levers, find_levers
from perfwrap.rules.model import MINOR_SHARE, Answer, Clear, Finding, NotChecked, Option, Scope

NEEDS = ("trainer", "kernels")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    minor_share: float = MINOR_SHARE
    min_plain_share: float = 0.5
    """Share of the matrix kernels' time without tensor cores from which it is the rule and not an exception for one
    shape."""


SPEEDUPS = (4.0, 1.5)
"""Speedups of the kernels, best and worst: our range, until an experiment measures it. PyTorch's CUDA notes measured 7
times on an A100, for TF32 and square products of 10,240."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for matrix kernels without tensor cores."""
    gpu = limiting(evidence, trainer)
    if not isinstance(gpu, GpuActivity):
        return gpu
    kinds = [kind for kind in gpu.classes if kind.name in MATRIX]
    plain, tensor = sum(kind.plain_ns for kind in kinds), sum(kind.tensor_ns for kind in kinds)
    if not plain + tensor:
        return NotChecked("The kernel names do not show whether tensor cores are used.")
    share = loop_share(evidence, trainer, gpu, plain)
    if share < limits.minor_share or plain < limits.min_plain_share * (plain + tensor):
        return Clear(
            f"{units.share(tensor / (plain + tensor))} of the matrix kernels' time uses tensor cores, according to "
            "their names."
        )
    major = major_capability(gpu)
    if major is None:
        return NotChecked("The GPU model is unknown, and so is whether it has tensor cores.")
    if major < VOLTA:
        return Clear("This GPU has no tensor cores.")
    return [_finding(evidence, trainer, gpu, share, plain / (plain + tensor), major)]


def _finding(
    evidence: Evidence, trainer: Trainer, gpu: GpuActivity, share: float, of_matrix: float, major: int
) -> Finding:
    """Return the finding."""
    peaks = peaks_of(gpu)
    best, worst = (1.0 - share * (1.0 - 1.0 / min(factor, _ratio(peaks))) for factor in SPEEDUPS)
    part = units.share(share)
    tf32 = major >= AMPERE and not (peaks is not None and 0 < peaks.tf32 <= peaks.fp32)
    newer = 'torch.autocast("cuda", dtype=torch.bfloat16)'
    older = 'torch.autocast("cuda", dtype=torch.float16) with a torch.amp.GradScaler'
    autocast = newer if major >= AMPERE else older
    levers = evidence.get(find_levers, trainer)
    tf32 = tf32 and not levers.has_tf32
    return Finding(
        title=f"{part} of the GPU's time is matrix kernels that do not use tensor cores.",
        share=1.0 - worst,
        evidence=(
            f"In {window(gpu)}: {units.share(of_matrix)} of the time of matrix kernels with known names.",
            f"The largest: {_largest(gpu)}.",
            mfu(evidence, gpu),
        ),
        options=_options(levers, tf32, autocast, (best, worst), share),
        confidence="inferred",
        scope=Scope.WINDOW,
    )


def _options(
    levers: Levers, tf32: bool, autocast: str, saving: tuple[float, float], share: float
) -> tuple[Option, ...]:
    """Return what to change, as far as this run does not do it yet."""
    basis = f"{units.share(share)} of the GPU's time in such kernels"
    check = "Check that the loss still decreases as before."
    lower = Option('Call torch.set_float32_matmul_precision("high").', saving, basis, "tf32", check)
    first = (lower,) if tf32 else ()
    if levers.half:
        name = levers.half.kind.removeprefix("torch.")
        whole = Option(
            f"Put the whole forward pass and the loss under autocast: the models compute in {name} already, these "
            "kernels run outside of it.",
            saving,
            basis,
        )
        sizes = Option("Use sizes that are multiples of 8.", (saving[0], 1.0), "odd sizes may be the reason")
        return (whole, *first, sizes)
    return (*first, Option(f"Use {autocast}.", saving, basis, levers.half_experiment, check))


def _ratio(peaks: Peaks | None) -> float:
    """Return the maximum speedup of 16-bit tensor cores over fp32."""
    return peaks.half / peaks.fp32 if peaks is not None and peaks.half else float("inf")


def _largest(gpu: GpuActivity) -> str:
    """Return the name of the longest-running kernel without tensor cores, short enough for one line."""
    rows = gpu.events.table.filter(pl.col("class").is_in(MATRIX), ~pl.col("tensor"))
    spent = rows.group_by("name").agg((pl.col("end") - pl.col("start")).sum().alias("ns"))
    return short(str(spent.sort("ns", "name", descending=[True, False])["name"][0]))
