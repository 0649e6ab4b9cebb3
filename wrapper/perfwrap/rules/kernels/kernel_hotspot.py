"""One kernel takes a large part of the GPU's time.

What it finds
    In a record of the GPU's kernels, one kernel (all its launches together, without collectives) that takes at least
    30 % of the recorded time, and what limits it: as measured by ncu, otherwise from its FLOPs and bytes and the GPU's
    balance point, otherwise from the class of the kernel.

Why it costs
    With so much time in one kernel, it matters whether it runs as fast as the GPU allows.

How the gain is estimated
    If the distance of the kernel from the GPU's roofline is known: at best it reaches 80 % of it, at worst 60 %, below
    which ncu calls a kernel latency-bound. Otherwise no gain is claimed.

How to fix
    Compute-bound: lower precision (bfloat16, TF32), a smaller problem. Memory-bound: fuse it with neighboring kernels,
    lower precision. Latency-bound: larger sizes, other tiles, a fused kernel.

When it is wrong
    The bytes are the minimum for these sizes; a kernel that reads more is closer to its limit than it seems.
"""

from __future__ import annotations

import re
from typing import Any

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import GpuActivity
from perfwrap.measures.kernels.gpu_peaks import Peaks, peaks_of
from perfwrap.measures.kernels.kernel_marks import HALF_KERNEL, of_kernels
from perfwrap.measures.kernels.matrix_work import find_matrix_work
from perfwrap.measures.kernels.roofline import roofline
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import limiting, loop_share, short, window
from perfwrap.rules.levers import Levers, find_levers
from perfwrap.rules.model import MIN_REPORTED_SHARE, Answer, Clear, Finding, Option, Scope

NEEDS = ("trainer", "kernels")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    large_share: float = 0.30
    """Share of the recorded time."""


REACHABLE = (0.8, 0.6)
"""Share of the roofline that a kernel can reach, best and worst; 60 % is ncu's threshold (SpeedOfLight.py)."""

STREAMING = ("elementwise", "reduction", "normalisation", "copy")
"""Classes of kernels with few FLOPs per element: memory-bound on every GPU."""


class Limit(Struct, frozen=True):
    """What limits a kernel, the share of the roofline that it reaches (None if unknown), and the source of this."""

    bound: str
    reached: float | None
    words: str


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for a kernel that takes much of the time."""
    gpu = limiting(evidence, trainer)
    if not isinstance(gpu, GpuActivity):
        return gpu
    own = of_kernels(gpu).filter(~pl.col("nccl"))
    spent = own.group_by("name", "class").agg(pl.len(), pl.col("ns").sum())
    top = spent.sort("ns", "name", descending=[True, False]).row(0, named=True) if spent.height else None
    part = loop_share(evidence, trainer, gpu, top["ns"]) if top else 0.0
    if top is None or part < limits.large_share:
        return Clear(f"No kernel takes more than {units.share(part)} of the recorded time.")
    limit = _limit(evidence, gpu, top)
    best, worst = (
        0.0 if limit.reached is None else part * max(0.0, 1.0 - limit.reached / good) for good in REACHABLE
    )
    wasteful = worst >= limits.min_reported_share
    return [
        Finding(
            title=f"{units.share(part)} of the GPU's time is one kernel, {short(top['name'])}.",
            share=worst if wasteful else part,
            evidence=(
                f"In {window(gpu)}: {units.counted(top['len'], 'launch', 'launches')}, "
                f"{units.duration(top['ns'] / top['len'])} each.",
                limit.words,
            ),
            options=_options(
                limit.bound,
                evidence.get(find_levers, trainer),
                top["name"],
                (1.0 - best, 1.0 - worst) if wasteful else (1.0, 1.0),
                "" if limit.reached is None else f"it reaches {units.share(limit.reached)} of its limit",
            ),
            confidence="inferred",
            scope=Scope.WINDOW,
            informational=not wasteful,
        )
    ]


def _options(
    bound: str, levers: Levers, kernel: str, saving: tuple[float, float], basis: str
) -> tuple[Option, ...]:
    """Return what to change about a kernel with that limit, as far as this run does not do it yet."""
    is_half = levers.half is not None or re.search(HALF_KERNEL, kernel) is not None
    edits = {
        "memory": ["Fuse it with neighboring kernels: use fused attention or fused layers."],
        "latency": ["Give it larger sizes.", "Use a fused kernel instead."],
    }.get(bound, [])
    options = [Option(edit, saving, basis) for edit in edits]
    if bound == "memory" and levers.compiling:
        options.insert(
            0, Option(f"Fuse it with neighboring kernels: {levers.compiling}.", saving, basis, "compile")
        )
    if bound == "memory" and not is_half:
        options.append(Option("Move fewer bytes: 16-bit types.", saving, basis, levers.half_experiment))
    if bound in ("compute", "balanced") and not is_half:
        if levers.precision:
            options.append(Option(f"Use {levers.precision}.", saving, basis, levers.half_experiment))
        if levers.takes_bfloat16 and not levers.has_tf32:
            options.append(Option("Allow TF32 matrix products.", saving, basis, "tf32"))
    if bound == "balanced" and is_half:
        options.append(Option("Fuse it with neighboring kernels.", saving, basis))
    if bound in ("compute", "balanced"):
        options.append(Option("Compute less.", saving, basis))
    return tuple(options) or (
        Option("Measure it with Nsight Compute: `perfwrap run --ncu` shows what limits it.", saving, basis),
    )


def _limit(evidence: Evidence, gpu: GpuActivity, top: dict[str, Any]) -> Limit:
    """Return what limits the kernel, from the best evidence available."""
    measured = _by_ncu(evidence.get(roofline), top["name"])
    if measured is not None:
        return measured
    counted = _by_sizes(evidence, gpu, top["name"])
    if counted is not None:
        return counted
    if top["class"] in STREAMING:
        peaks = peaks_of(gpu)
        balance = "" if peaks is None else f", and the {peaks.product} needs {_balance(peaks)}"
        words = f"Kernels of this name do few FLOPs per byte{balance}: memory-bound."
        return Limit("memory", None, words)
    return Limit(
        "", None, "Its limit is unknown: no tensor shapes were recorded, and ncu did not measure it."
    )


def _balance(peaks: Peaks) -> str:
    """Return the balance point in words."""
    return f"{units.number(peaks.balance('half'))} with 16-bit types"


def _by_ncu(roofline: pl.DataFrame, name: str) -> Limit | None:
    """Return ncu's measurement of a kernel with this name."""
    own = [row for row in roofline.iter_rows(named=True) if short(row["kernel"]) == short(name)]
    if not own or own[0]["bound"] is None:
        return None
    row = own[0]
    reached = max(row["compute_share"], row["memory_share"])
    words = (
        f"ncu: {units.share(row['compute_share'])} of peak compute, {units.share(row['memory_share'])} of peak "
        f"memory bandwidth; limited by {row['bound']}."
    )
    return Limit(row["bound"], reached, words)


def _by_sizes(evidence: Evidence, gpu: GpuActivity, name: str) -> Limit | None:
    """Return the limit from FLOPs and bytes of the operations that mostly use this kernel."""
    work = evidence.get(find_matrix_work, gpu)
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
            bound,
            None,
            "Its FLOPs and bytes would need more time than it took, so the shapes are incomplete.",
        )
    words = (
        f"Its shapes give {units.number(flops / moved)} FLOPs per byte; the balance point of the "
        f"{work.peaks.product} is {units.number(balance)} ({rows['precision'][0]}), so its limit is {bound}. It "
        f"reaches {units.share(least / spent)} of that limit."
    )
    return Limit(bound if least / spent >= REACHABLE[1] else "latency", least / spent, words)  # fmt: skip
