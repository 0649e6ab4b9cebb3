"""The GPU looks busy or full, but it is not.

What it finds
    A GPU with at least 90 % utilization while its multiprocessors are active less than half of the time, or while
    neither compute nor memory is busy 30 % of it (reported by GPUs from Hopper on). Also, as information, memory that
    is at least 80 % full while the utilization is below 50 %.

Why it costs
    It costs nothing by itself: utilization is the share of the time in which any kernel runs. A kernel that uses one of
    a hundred multiprocessors counts fully, so the GPU has room although it looks busy.

How the gain is estimated
    No gain is claimed here: small_batch, launch_bound and other rules estimate it.

How to fix
    Larger batches, fewer and larger kernels (torch.compile, CUDA graphs), fused attention; see the other findings.

When it is wrong
    The figures are means over seconds: a loop that computes half of the time and waits for half looks the same as one
    that is half busy all of the time. A caching allocator fills memory in any run; that is no problem.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu.gpu_state import Gpu
from perfwrap.measures.gpu.own_gpus import find_own_gpus
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked

NEEDS = ("steady_steps", "gpu")

MIN_BUSY_SHARE = 0.90
"""Utilization from which a GPU looks busy."""
MAX_SM_SHARE = 0.5
"""Share of the time below which its multiprocessors are not busy."""
MAX_UNITS_SHARE = 0.3
"""Share of the peak below which neither compute nor memory is the limit; below 60 % of both, ncu says latency-bound."""
UNITS = ("tensor", "fp64", "fp32", "fp16", "dram")

FULL_MEMORY_SHARE = 0.80
"""Share of the GPU memory from which it looks full."""
LOW_UTILIZATION_SHARE = 0.50
"""Utilization below which full memory seems strange."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for misleading utilization."""
    gpus = [gpu for gpu in evidence.get(find_own_gpus, trainer) if gpu.utilization is not None]
    if not gpus:
        return NotChecked("Utilization of this training thread's GPU was not recorded.")
    found = [finding for gpu in gpus for finding in (_busy(gpu), _full(gpu)) if finding is not None]
    if found:
        return found
    if (
        not any(gpu.activity for gpu in gpus)
        and max(gpu.utilization or 0.0 for gpu in gpus) >= MIN_BUSY_SHARE
    ):
        return NotChecked("Needs multiprocessor activity, which NVIDIA GPUs report from Hopper on.")
    return Clear("Utilization and multiprocessor activity agree.")


def _busy(gpu: Gpu) -> Finding | None:
    """Return that a GPU looks busy and is not."""
    working = gpu.activity.get("sm")
    if working is None or (gpu.utilization or 0.0) < MIN_BUSY_SHARE:
        return None
    busiest = max((gpu.activity.get(unit, 0.0), unit) for unit in UNITS)
    if working >= MAX_SM_SHARE and (
        busiest[0] >= MAX_UNITS_SHARE or not any(unit in gpu.activity for unit in UNITS)
    ):
        return None
    return _note(
        f"{gpu.name} shows {units.share(gpu.utilization)} utilization, but its multiprocessors are active only "
        f"{units.share(working)} of the time.",
        f"Its busiest unit is {busiest[1]}, at {units.share(busiest[0])} of its peak. Utilization only means that some "
        "kernel runs.",
        "See the other findings: launches, small batches, casts and unfused operations leave units idle.",
    )


def _full(gpu: Gpu) -> Finding | None:
    """Return that full memory with little work is no problem."""
    if not gpu.memory_total_bytes or gpu.memory_used_bytes is None:
        return None
    full = gpu.memory_used_bytes / gpu.memory_total_bytes
    if full < FULL_MEMORY_SHARE or (gpu.utilization or 0.0) >= LOW_UTILIZATION_SHARE:
        return None
    return _note(
        f"{gpu.name}'s memory is {units.share(full)} full while it is busy {units.share(gpu.utilization)} of the "
        "time, which is normal.",
        "Full memory says nothing about the work of the GPU; other findings show what it waits for.",
        "Change nothing about the memory; see the other findings for what the GPU waits for.",
    )


def _note(title: str, words: str, advice: str) -> Finding:
    """Return a note that claims no time."""
    return Finding(
        title=title, share=0.0, saving=(1.0, 1.0), evidence=(words,), advice=advice, informational=True
    )  # fmt: skip
