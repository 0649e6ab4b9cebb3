"""What the rules share that rest on a record of the GPU's kernels."""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu_activity import GpuActivity
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import NotChecked

LEAST_KERNELS = 50
"""Kernels below which a record says nothing about a loop: a small network's step has some hundred."""

LONGEST_NAME = 60

NAMELESS = ("(anonymous namespace)::", "<unnamed>::", "unnamed>::")
"""How compilers and profilers write namespaces without a name."""

TERA = 1e12

LIMITS = 0.60
"""Of the peak; below that ncu calls neither arithmetic nor memory the limit (SpeedOfLight.py)."""


def recorded(evidence: Evidence, trainer: Trainer) -> GpuActivity | NotChecked:
    """Return what the trainer's GPU did, or why that cannot be said."""
    gpu = evidence.gpu_of(trainer)
    if gpu is None or not gpu.window_ns:
        return NotChecked("The kernels of this trainer's GPU were not recorded.")
    kernels = gpu.count("kernel")
    if kernels < LEAST_KERNELS:
        return NotChecked(
            f"Only {units.counted(kernels, 'kernel')} of this trainer's GPU were recorded, "
            f"{LEAST_KERNELS} are wanted."
        )
    return gpu


def with_blame(evidence: Evidence, trainer: Trainer) -> GpuActivity | NotChecked:
    """Return the same where the GPU's idle time can be held against what the host did."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, GpuActivity) and gpu.events.clock_is_off:
        return NotChecked("The clocks of host and GPU do not fit together in this recording.")
    return gpu


def window(gpu: GpuActivity) -> str:
    """Return what the shares are of, e.g. ``1.2 s of gpu/0's time, with 3 marked steps``."""
    steps = gpu.steps.table.height
    marked = f", with {units.counted(steps, 'marked step')}" if steps else ""
    return f"{units.duration(gpu.window_ns)} of {gpu.device}'s time{marked}"


def mfu(evidence: Evidence, gpu: GpuActivity) -> str:
    """Return in a sentence how much of the GPU's peak the counted FLOPs are, or why that is not told."""
    work = evidence.matrix_work(gpu)
    if work is None:
        return "Its FLOPs were not counted; that needs sizes (`perfwrap run --window-detail shapes`)."
    if work.mfu is None or work.peaks is None:
        return f"MFU is not told: {work.why_no_mfu}."
    return (
        f"MFU {units.share(work.mfu)}: so much of the time {units.number(work.flops / TERA)} TFLOP of matrix work take "
        f"at the {work.peaks.product}'s peak in the precisions that were used ({work.peaks.source})."
    )


def units_at_work(evidence: Evidence, trainer: Trainer) -> tuple[str, ...]:
    """Return what the GPU's own counters say about arithmetic and memory; nothing where they were not read."""
    told = [gpu for gpu in evidence.own_gpus(trainer) if {"tensor", "dram"} <= gpu.activity.keys()]
    if not told:
        return ()
    tensor, dram = told[0].activity["tensor"], told[0].activity["dram"]
    limit = "memory limits it" if dram >= LIMITS and dram > tensor else ""
    limit = "tensor cores limit it" if tensor >= LIMITS and tensor >= dram else limit
    return (
        f"{told[0].name}: tensor cores {units.share(tensor)}, memory bandwidth {units.share(dram)} of the peak; "
        f"{limit or 'neither limits it'}.",
    )


def short(name: str) -> str:
    """Return a kernel's name without its arguments, cut to what fits a line."""
    plain = name.removeprefix("void ")
    for nowhere in NAMELESS:
        plain = plain.replace(nowhere, "")
    return plain.split("(")[0].split("<")[0][:LONGEST_NAME] or name[:LONGEST_NAME]
