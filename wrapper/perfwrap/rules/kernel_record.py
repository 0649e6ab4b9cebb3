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


def short(name: str) -> str:
    """Return a kernel's name without its arguments, cut to what fits a line."""
    return name.removeprefix("void ").split("(")[0].split("<")[0][:LONGEST_NAME] or name[:LONGEST_NAME]
