"""Other people's programs, or other jobs, are on the same GPU.

What it finds
    Processes on the trainer's GPU that do not belong to this run, in 5 % of the samples or more, with memory that is
    worth a word (1 % of the card) or not known.

Why it costs
    They take turns on the GPU, and their memory is not there for this run. Times change from run to run with what the
    others do.

How the saving is worked out
    None is claimed: how much of the GPU's time the others took is not known.

How to fix
    Another GPU (CUDA_VISIBLE_DEVICES), a slice of its own (MIG), or an agreement with the others.

When it is wrong
    A process that only holds memory and computes nothing costs no time. Inside a container nobody is called another.
"""

from __future__ import annotations

import re

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu import OWNER, Gpu
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked

NEEDS = ("steady_steps", "gpu")

OFTEN = 0.05
"""Processes on average, from which others count as there: one of them in a twentieth of the samples."""
LITTLE_MEMORY = 0.01
"""Of the card; a desktop's own programs hold less, and compute little."""
NAMED = 3


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for others on the trainer's GPU."""
    known = [gpu for gpu in evidence.own_gpus(trainer) if gpu.other_processes is not None]
    if not known:
        return NotChecked("Whose the processes on this trainer's GPU are was not told.")
    found = [_finding(evidence, gpu) for gpu in known if _is_shared(gpu)]
    return found or Clear("Nobody else was on this trainer's GPU.")


def _is_shared(gpu: Gpu) -> bool:
    """Say whether others were there, with memory that is worth a word."""
    if (gpu.other_processes or 0.0) < OFTEN:
        return False
    if gpu.other_memory_used_bytes is None or not gpu.memory_total_bytes:
        return True
    return gpu.other_memory_used_bytes >= LITTLE_MEMORY * gpu.memory_total_bytes


def _finding(evidence: Evidence, gpu: Gpu) -> Finding:
    """Return the finding about one GPU."""
    facts = evidence.facts(gpu.track)
    others = [key.split("/")[1] for key, value in facts.items() if OWNER.match(key) and value == "other"]
    programs = sorted({facts.get(f"process/{pid}/program", "") for pid in others} - {""})
    named = f": {', '.join(re.sub(r'[^ -~]', '?', name) for name in programs[:NAMED])}" if programs else ""
    words = [f"On average {units.number(gpu.other_processes or 0.0)} of their processes{named}."]
    if gpu.other_memory_used_bytes is not None:
        words.append(f"They hold {units.size(gpu.other_memory_used_bytes)} of its memory.")
    return Finding(
        title=f"Others are at work on {gpu.name}, too.",
        share=0.0,
        saving=(1.0, 1.0),
        evidence=tuple(words),
        advice="Take another GPU (CUDA_VISIBLE_DEVICES), or have a slice of it (MIG) to yourself.",
        health=True,
    )
