"""One kernel takes a large part of the GPU's time.

What it finds
    In a record of the GPU's kernels, one kernel (of all its launches together) that takes 30 % of the recorded time or
    more, collectives left out, and what limits it: as ncu measured it, else by its FLOPs and bytes against the GPU's
    balance point, else by what kernels of its class do.

Why it costs
    Where so much time is in one place, it is worth knowing whether it runs as fast as the GPU allows.

How the saving is worked out
    Where it is known how near the kernel comes to the GPU's roofline: at best it gets to 80 % of it, at worst to 60 %,
    below which ncu calls a kernel limited by latency. Nothing is claimed where that is not known.

How to fix
    Limited by arithmetic: fewer bits (bfloat16, TF32), a smaller problem. By memory: fuse it with its neighbours, fewer
    bits. By latency: larger sizes, other tiles, a fused kernel.

When it is wrong
    The bytes are the fewest that the sizes allow; a kernel that reads more is nearer to its limit than it looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu_activity import GpuActivity
from perfwrap.measures.gpu_peaks import Peaks, peaks_of
from perfwrap.measures.kernel_marks import of_kernels
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import recorded, short, window
from perfwrap.rules.model import QUIET_SHARE, Answer, Clear, Finding, NotChecked

NEEDS = ("trainer", "kernels")

LARGE_SHARE = 0.30
"""Of the recorded time; the catalogue's figure."""

GOOD = (0.8, 0.6)
"""Of the roofline, what a kernel can be brought to at best and at worst; 60 % is ncu's threshold (SpeedOfLight.py)."""

STREAMING = ("elementwise", "reduction", "normalisation", "copy")
"""Classes whose kernels do a few FLOPs per element: memory limits them on every GPU."""

ADVICE = {
    "compute": "Use fewer bits (torch.autocast with bfloat16, TF32), or compute less.",
    "memory": "Fuse it with its neighbours (torch.compile, fused attention), or move fewer bytes (16-bit types).",
    "balanced": "Use fewer bits; that helps arithmetic and memory alike.",
    "latency": "Give it larger sizes, or use a fused kernel in its place.",
    "": "Measure it with Nsight Compute: `perfwrap run --ncu` says what limits it.",
}


@dataclass(frozen=True)
class Limit:
    """What limits a kernel, how near it comes to the roofline (None: not known), and how that is known."""

    bound: str
    reached: float | None
    words: str


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for a kernel that takes much of the time."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    own = of_kernels(gpu).filter(~pl.col("nccl"))
    spent = own.group_by("name", "class").agg(pl.len(), pl.col("ns").sum())
    top = spent.sort("ns", "name", descending=[True, False]).row(0, named=True) if spent.height else None
    part = min(1.0, top["ns"] / gpu.window_ns) if top else 0.0
    if top is None or part < LARGE_SHARE:
        return Clear(f"No kernel takes more than {units.share(part)} of the recorded time.")
    limit = _limit(evidence, gpu, top)
    best, worst = (
        0.0 if limit.reached is None else part * max(0.0, 1.0 - limit.reached / good) for good in GOOD
    )
    wasteful = worst >= QUIET_SHARE
    return [
        Finding(
            title=f"{units.share(part)} of the GPU's time goes to one kernel, {short(top['name'])}.",
            share=worst if wasteful else part,
            saving=(1.0 - best, 1.0 - worst) if wasteful else (1.0, 1.0),
            evidence=(
                f"Seen in {window(gpu)}: {units.counted(top['len'], 'launch', 'launches')}, "
                f"{units.duration(top['ns'] / top['len'])} each.",
                limit.words,
            ),
            advice=ADVICE[limit.bound],
            confidence="inferred",
            of_window=True,
            benign=not wasteful,
        )
    ]  # fmt: skip


def _limit(evidence: Evidence, gpu: GpuActivity, top: dict[str, Any]) -> Limit:
    """Return what limits the kernel, by the best evidence that there is."""
    measured = _by_ncu(evidence.roofline, top["name"])
    if measured is not None:
        return measured
    counted = _by_sizes(evidence, gpu, top["name"])
    if counted is not None:
        return counted
    if top["class"] in STREAMING:
        peaks = peaks_of(gpu)
        balance = "" if peaks is None else f", where the {peaks.product} can do {_balance(peaks)}"
        words = f"By its name it does few FLOPs per byte{balance}: memory limits it."
        return Limit("memory", None, words)
    return Limit("", None, "What limits it is not known: no sizes were recorded, and ncu did not measure it.")


def _balance(peaks: Peaks) -> str:
    """Return the balance point in words."""
    return f"{units.number(peaks.balance('half'))} with 16-bit types"


def _by_ncu(roofline: pl.DataFrame, name: str) -> Limit | None:
    """Return what ncu measured of a kernel of this name."""
    own = [row for row in roofline.iter_rows(named=True) if short(row["kernel"]) == short(name)]
    if not own or own[0]["bound"] is None:
        return None
    row = own[0]
    reached = max(row["compute_share"], row["memory_share"])
    words = (
        f"ncu: {units.share(row['compute_share'])} of the peak in arithmetic, {units.share(row['memory_share'])} in "
        f"memory; limited by {row['bound']}."
    )
    return Limit(row["bound"], reached, words)


def _by_sizes(evidence: Evidence, gpu: GpuActivity, name: str) -> Limit | None:
    """Return what FLOPs and bytes of the operations say whose kernels are mostly this one."""
    work = evidence.matrix_work(gpu)
    if work is None or work.peaks is None:
        return None
    rows = work.table.filter(
        pl.col("kernel") == name, pl.col("flops").is_not_null(), pl.col("bytes").is_not_null()
    )
    if rows.is_empty() or not work.peaks.flops(str(rows["precision"][0])):
        return None
    flops, moved, spent = float(rows["flops"].sum()), float(rows["bytes"].sum()), int(rows["ns"].sum()) / 1e9
    peak, balance = work.peaks.flops(rows["precision"][0]), work.peaks.balance(rows["precision"][0])
    least = max(flops / peak, moved / work.peaks.bandwidth)
    bound = "compute" if flops / moved >= balance else "memory"
    if least > spent:
        return Limit(
            bound, None, "Its FLOPs and bytes would need more time than it took: the sizes do not tell all."
        )
    words = (
        f"Its sizes say {units.number(flops / moved)} FLOPs per byte; the {work.peaks.product} balances at "
        f"{units.number(balance)} ({rows['precision'][0]}), so {bound} limits it at best. It reaches "
        f"{units.share(least / spent)} of that limit."
    )
    return Limit(bound if least / spent >= GOOD[1] else "latency", least / spent, words)  # fmt: skip
