"""What a GPU's "utilisation" and full memory do not mean.

What it finds
    A GPU whose utilisation is 90 % or more while its multiprocessors work for less than half of the time, or while
    neither arithmetic nor memory is busy for 30 % of it (as GPUs from Hopper on tell). And, as a word of ease, memory
    that is 80 % full or more while the utilisation is below 50 %.

Why it costs
    It does not by itself: utilisation is a duty cycle, the share of the time in which any kernel ran at all. A kernel
    that fills one multiprocessor of a hundred counts as a whole one, so the GPU has room although it looks full.

How the saving is worked out
    None is claimed here: small_batch, launch_bound and the other rules say what the room is worth.

How to fix
    Larger batches, fewer and larger kernels (torch.compile, CUDA graphs), fused attention; see the other findings.

When it is wrong
    The units' figures are means of seconds: a loop that computes half of the time and waits for half looks the same as
    one that is half full all of the time. Full memory is what a caching allocator makes of any run, and no fault.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu import Gpu
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked

NEEDS = ("steady_steps", "gpu")

BUSY = 0.90
"""Utilisation from which a GPU looks full; the catalogue's figure."""
IDLE_SM = 0.5
"""Share of the time below which its multiprocessors are not."""
IDLE_UNITS = 0.3
"""Share of the peak below which neither arithmetic nor memory limits anything; ncu calls 60 % of both latency-bound."""
UNITS = ("tensor", "fp64", "fp32", "fp16", "dram")

FULL_MEMORY = 0.80
"""Share of the card from which its memory looks full."""
LITTLE_WORK = 0.50
"""Utilisation below which it looks strange beside that."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for utilisation that means less than it looks."""
    gpus = [gpu for gpu in evidence.own_gpus(trainer) if gpu.utilization is not None]
    if not gpus:
        return NotChecked("The utilisation of this trainer's GPU was not sampled.")
    found = [finding for gpu in gpus for finding in (_busy(gpu), _full(gpu)) if finding is not None]
    if found:
        return found
    if not any(gpu.activity for gpu in gpus) and max(gpu.utilization or 0.0 for gpu in gpus) >= BUSY:
        return NotChecked(
            "What the units of this GPU do is told by NVIDIA's GPUs from Hopper on, not by this one."
        )
    return Clear("The utilisation and what the units did do not contradict each other.")


def _busy(gpu: Gpu) -> Finding | None:
    """Return that a GPU looks full and is not."""
    working = gpu.activity.get("sm")
    if working is None or (gpu.utilization or 0.0) < BUSY:
        return None
    busiest = max((gpu.activity.get(unit, 0.0), unit) for unit in UNITS)
    if working >= IDLE_SM and (busiest[0] >= IDLE_UNITS or not any(unit in gpu.activity for unit in UNITS)):
        return None
    return _note(
        f"{gpu.name} looks {units.share(gpu.utilization)} busy, but its multiprocessors work "
        f"{units.share(working)} of the time.",
        f"Its busiest unit is {busiest[1]}, at {units.share(busiest[0])} of its peak. Utilisation only says that some "
        "kernel ran.",
        "Look at the other findings: launches, small batches, casts and unfused operations leave units empty.",
    )


def _full(gpu: Gpu) -> Finding | None:
    """Return that full memory beside little work is fine."""
    if not gpu.memory_total_bytes or gpu.memory_used_bytes is None:
        return None
    full = gpu.memory_used_bytes / gpu.memory_total_bytes
    if full < FULL_MEMORY or (gpu.utilization or 0.0) >= LITTLE_WORK:
        return None
    return _note(
        f"{gpu.name}'s memory is {units.share(full)} full while it is busy {units.share(gpu.utilization)} of the "
        "time: that is fine.",
        "Memory that is held says nothing about work that is done; what the GPU waits for is told by others.",
        "Nothing to do about the memory; see what the GPU waits for.",
    )


def _note(title: str, words: str, advice: str) -> Finding:
    """Return a note that claims nothing."""
    return Finding(
        title=title, share=0.0, saving=(1.0, 1.0), evidence=(words,), advice=advice, benign=True
    )  # fmt: skip
