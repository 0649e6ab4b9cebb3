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

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu.gpu_state import Gpu
from perfwrap.measures.gpu.own_gpus import find_own_gpus
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option

NEEDS = ("steady_steps", "gpu")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_busy_share: float = 0.90
    """Utilization from which a GPU looks busy."""
    max_sm_share: float = 0.5
    """Share of the time below which its multiprocessors are not busy."""
    max_units_share: float = 0.3
    """Share of the peak below which neither compute nor memory is the limit; below 60 % of both, ncu says
    latency-bound."""
    full_memory_share: float = 0.80
    """Share of the GPU memory from which it looks full."""
    low_utilization_share: float = 0.50
    """Utilization below which full memory seems strange."""


UNITS = ("tensor", "fp64", "fp32", "fp16", "dram")


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for misleading utilization."""
    gpus = [gpu for gpu in evidence.get(find_own_gpus, trainer) if gpu.utilization is not None]
    if not gpus:
        return NotChecked("Utilization of this training thread's GPU was not recorded.")
    found = [
        finding for gpu in gpus for finding in (_busy(gpu, limits), _full(gpu, limits)) if finding is not None
    ]
    if found:
        return found
    if (
        not any(gpu.activity for gpu in gpus)
        and max(gpu.utilization or 0.0 for gpu in gpus) >= limits.min_busy_share
    ):
        return NotChecked("Needs multiprocessor activity, which NVIDIA GPUs report from Hopper on.")
    return Clear("Utilization and multiprocessor activity agree.")


def _busy(gpu: Gpu, limits: Limits) -> Finding | None:
    """Return that a GPU looks busy and is not."""
    working = gpu.activity.get("sm")
    if working is None or (gpu.utilization or 0.0) < limits.min_busy_share:
        return None
    busiest = max((gpu.activity.get(unit, 0.0), unit) for unit in UNITS)
    if working >= limits.max_sm_share and (
        busiest[0] >= limits.max_units_share or not any(unit in gpu.activity for unit in UNITS)
    ):
        return None
    return _note(
        f"{gpu.name} shows {units.share(gpu.utilization)} utilization, but its multiprocessors are active only "
        f"{units.share(working)} of the time.",
        f"Its busiest unit is {busiest[1]}, at {units.share(busiest[0])} of its peak. Utilization only means that some "
        "kernel runs.",
        "See the other findings: launches, small batches, casts and unfused operations leave units idle.",
    )


def _full(gpu: Gpu, limits: Limits) -> Finding | None:
    """Return that full memory with little work is no problem."""
    if not gpu.memory_total_bytes or gpu.memory_used_bytes is None:
        return None
    full = gpu.memory_used_bytes / gpu.memory_total_bytes
    if full < limits.full_memory_share or (gpu.utilization or 0.0) >= limits.low_utilization_share:
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
        title=title, share=0.0, evidence=(words,), options=(Option(advice, (1.0, 1.0)),), informational=True
    )
