"""Matrix products and convolutions run without tensor cores on a GPU that has them.

What it finds
    Kernels for matrix products, convolutions and attention that do not use tensor cores, by their names, in a
    record of the GPU's kernels: when they are at least half of the time of all such kernels whose names tell, and 5 %
    of the recorded time or more.

Why it costs
    Tensor cores do the same products several times as fast: by NVIDIA's papers 8 times at the peak on a V100 (fp16
    against fp32) and on an A100 (TF32 against fp32), but only twice on GeForce cards from the RTX 30 on (16 bits
    against fp32; TF32 gains nothing there).

How the saving is worked out
    Inferred: these kernels become 1.5 to 4 times as fast, a range of ours, and no faster than the ratio of the GPU's
    peaks where that is known. The share of the finding is what goes at 1.5 times: the rest of that time is no waste.

How to fix
    From Ampere on: torch.set_float32_matmul_precision("high") (TF32), then torch.autocast with bfloat16; on GeForce
    cards and the L40 the latter alone. On Volta and Turing: torch.autocast with float16 and a GradScaler. Sizes that
    are multiples of 8.

When it is wrong
    When the program needs all of fp32's digits. Where kernels have names of their own (Triton, hand-written ones)
    nothing is known about them, and they are left out.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu_activity import GpuActivity
from perfwrap.measures.gpu_generation import AMPERE, VOLTA, major_capability
from perfwrap.measures.gpu_peaks import Peaks, peaks_of
from perfwrap.measures.kernel_classes import MATRIX
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import mfu, recorded, short, window
from perfwrap.rules.model import MINOR_SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("trainer", "kernels")

MOST_OF = 0.5
"""From this share of the matrix kernels' time on they run without tensor cores as a rule, not as an exception that a
library chose for one shape."""

FASTER = (4.0, 1.5)
"""How many times as fast the kernels become, at best and at worst: a range of ours, until an experiment tells.
PyTorch's notes on CUDA measured 7 times on an A100, for TF32 and square products of 10,240."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for matrix kernels that leave the tensor cores idle."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    kinds = [kind for kind in gpu.classes if kind.name in MATRIX]
    plain, tensor = sum(kind.plain_ns for kind in kinds), sum(kind.tensor_ns for kind in kinds)
    if not plain + tensor:
        return NotChecked("The names of the recorded kernels do not tell whether they use tensor cores.")
    share = min(1.0, plain / gpu.window_ns)
    if share < MINOR_SHARE or plain < MOST_OF * (plain + tensor):
        return Clear(
            f"{units.share(tensor / (plain + tensor))} of the matrix kernels' time is on tensor cores, as far as "
            "their names tell."
        )
    major = major_capability(gpu)
    if major is None:
        return NotChecked("Nothing tells which GPU this is, and so whether it has tensor cores.")
    if major < VOLTA:
        return Clear("This GPU has no tensor cores.")
    return [_finding(evidence, gpu, share, plain / (plain + tensor), major)]


def _finding(evidence: Evidence, gpu: GpuActivity, share: float, of_matrix: float, major: int) -> Finding:
    """Return the finding."""
    peaks = peaks_of(gpu)
    best, worst = (1.0 - share * (1.0 - 1.0 / min(factor, _ratio(peaks))) for factor in FASTER)
    part = units.share(share)
    tf32 = major >= AMPERE and not (peaks is not None and 0 < peaks.tf32 <= peaks.fp32)
    newer = 'torch.autocast("cuda", dtype=torch.bfloat16)'
    older = 'torch.autocast("cuda", dtype=torch.float16) with a torch.amp.GradScaler'
    first = 'torch.set_float32_matmul_precision("high"), then ' if tf32 else ""
    return Finding(
        title=f"{part} of the GPU's time goes to matrix kernels that leave its tensor cores idle.",
        share=1.0 - worst,
        saving=(best, worst),
        evidence=(
            f"Seen in {window(gpu)}: {units.share(of_matrix)} of the time of matrix kernels whose names tell.",
            f"The largest of them: {_largest(gpu)}.",
            mfu(evidence, gpu),
        ),
        advice=f"Use {first}{newer if major >= AMPERE else older}, and check that the loss still falls as before.",
        experiment="tf32" if tf32 else None,
        confidence="inferred",
        of_window=True,
    )


def _ratio(peaks: Peaks | None) -> float:
    """Return how many times as fast as fp32 the GPU's tensor cores are with 16 bits at most."""
    return peaks.half / peaks.fp32 if peaks is not None and peaks.half else float("inf")


def _largest(gpu: GpuActivity) -> str:
    """Return the name of the kernel without tensor cores that takes most time, cut to what fits a line."""
    rows = gpu.events.table.filter(pl.col("class").is_in(MATRIX), ~pl.col("tensor"))
    spent = rows.group_by("name").agg((pl.col("end") - pl.col("start")).sum().alias("ns"))
    return short(str(spent.sort("ns", "name", descending=[True, False])["name"][0]))
