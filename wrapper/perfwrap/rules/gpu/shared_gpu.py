"""Other programs use the same GPU.

What it finds
    Processes on the trainer's GPU that do not belong to this run, in at least 5 % of the samples, with at least 1 % of
    the GPU memory or an unknown amount.

Why it costs
    They share the GPU's time, and this run cannot use their memory. Step times vary with what the others do.

How the gain is estimated
    No gain is claimed: how much GPU time the others used is unknown.

How to fix
    Use another GPU (CUDA_VISIBLE_DEVICES), a slice of it (MIG), or agree with the other users.

When it is wrong
    A process that only holds memory and computes nothing costs no time. Inside a container other processes are not
    visible.
"""

from __future__ import annotations

import re

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.gpu.gpu_state import OWNER, Gpu
from perfwrap.measures.gpu.own_gpus import find_own_gpus
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option

NEEDS = ("steady_steps", "gpu")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_mean_processes: float = 0.05
    """Mean number of other processes: one of them in 5 % of the samples."""
    min_memory_share: float = 0.01
    """Share of the GPU memory; desktop programs hold less and compute little."""
    max_named: int = 3
    """How many of the other programs are named."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for other processes on the trainer's GPU."""
    known = [gpu for gpu in evidence.get(find_own_gpus, trainer) if gpu.other_processes is not None]
    if not known:
        return NotChecked("The owners of the processes on this GPU are unknown.")
    found = [_finding(evidence, gpu, limits) for gpu in known if _is_shared(gpu, limits)]
    return found or Clear("No other process used this GPU.")


def _is_shared(gpu: Gpu, limits: Limits) -> bool:
    """Return whether others used the GPU with a relevant amount of memory."""
    if (gpu.other_processes or 0.0) < limits.min_mean_processes:
        return False
    if gpu.other_memory_used_bytes is None or not gpu.memory_total_bytes:
        return True
    return gpu.other_memory_used_bytes >= limits.min_memory_share * gpu.memory_total_bytes


def _finding(evidence: Evidence, gpu: Gpu, limits: Limits) -> Finding:
    """Return the finding about one GPU."""
    facts = evidence.get(find_facts, gpu.track)
    others = [key.split("/")[1] for key, value in facts.items() if OWNER.match(key) and value == "other"]
    programs = sorted({facts.get(f"process/{pid}/program", "") for pid in others} - {""})
    shown = ", ".join(re.sub(r"[^ -~]", "?", name) for name in programs[: limits.max_named])
    named = f" ({shown})" if shown else ""
    words = [f"{units.number(gpu.other_processes or 0.0)} other processes on average."]
    if gpu.other_memory_used_bytes is not None:
        words.append(f"They hold {units.size(gpu.other_memory_used_bytes)} of its memory.")
    return Finding(
        title=f"Other programs also use {gpu.name}{named}, which can make steps longer.",
        share=0.0,
        evidence=tuple(words),
        options=(
            Option("Use another GPU (CUDA_VISIBLE_DEVICES), or a slice of this one (MIG).", (1.0, 1.0)),
        ),
        health=True,
    )
