"""The run ran out of memory: on the GPU, or on the host.

What it finds
    Errors of torch's that memory of the GPU had run out, with the line that asked, what it asked for, what was free,
    and the largest live blocks where the program records memory history or a snapshot of it was imported; and processes
    that the kernel killed for want of memory.

Why it costs
    The run has ended, or a part of its work is lost.

How the saving is worked out
    No time is claimed.

How to fix
    By class. Activations: a smaller batch with accumulation, activation checkpointing. Memory in pieces: expandable
    segments. A leak: the line that keeps tensors. On the host: fewer workers, less prefetching, no growing lists.

When it is wrong
    Where the program catches the error and tries again with a smaller batch on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.out_of_memory import GpuShortage, LiveBlocks, find_live_blocks, find_shortages
from perfwrap.measures.trainers import Trainer
from perfwrap.rules import kept
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, locate, place

NEEDS = ("trainer",)

NAMED = 3
"""Lines with most live memory that are named."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for errors of this trainer's, and for what the kernel killed."""
    found = _gpu(evidence, trainer.process, trainer)
    if trainer == evidence.main:
        trains = {other.process for other in evidence.trainers}
        for process in find_shortages(evidence.timeline).keys() - trains:
            found += _gpu(evidence, process, None)
        found += _host(evidence)
    if not found and "imported" in evidence.timeline.run and not any(gpu.peak for gpu in evidence.gpu_memory):
        return NotChecked(
            "Whether memory ran out cannot be told from these files; torch.cuda.memory._dump_snapshot() after "
            "_record_memory_history() writes one that tells."
        )
    return found or Clear("No memory ran out.")


def check_run(evidence: Evidence) -> Answer:
    """Look at a run that ended before anything trained."""
    processes = find_shortages(evidence.timeline).keys()
    found = [finding for process in processes for finding in _gpu(evidence, process, None)]
    return [*found, *_host(evidence)] or Clear("No memory ran out.")


def _gpu(evidence: Evidence, process: int, trainer: Trainer | None) -> list[Finding]:
    """Return the finding about the last error of one process."""
    shortages = find_shortages(evidence.timeline).get(process, ())
    if not shortages:
        return []
    last = shortages[-1]
    blocks = find_live_blocks(evidence.timeline, process)
    graphs = evidence.kept_graphs(trainer) if trainer is not None else ()
    ended = "exit" in evidence.timeline.run and not _ended_well(evidence.timeline.run)
    return [
        Finding(
            title=f"GPU memory ran out at {place(last.where, 'one line')}, which asked for {units.size(last.asked)}.",
            share=0.0,
            saving=(1.0, 1.0),
            evidence=(*_counts(last, len(shortages)), *_live(blocks), *kept.words(graphs)),
            advice=kept.advice(graphs) if graphs else _advice(last),
            location=locate(last.where),
            health=True,
            at_least="critical" if ended else "major",
        )
    ]


def _ended_well(run: Mapping[str, Any]) -> bool:
    """Say whether the command ended with exit code 0."""
    how = run.get("exit")
    return isinstance(how, Mapping) and how.get("code") == 0


def _counts(last: GpuShortage, errors: int) -> tuple[str, ...]:
    """Return what was free, in use and in reserve."""
    words = [
        f"{name} {units.size(value)}"
        for name, value in (
            ("free on the card", last.free),
            ("in use", last.allocated),
            ("reserved by torch", last.reserved),
        )
        if value is not None
    ]
    many = () if errors == 1 else (f"It was the last of {units.count(errors)} such errors.",)
    return (f"At that moment: {', '.join(words)}.", *many) if words else many


def _live(blocks: tuple[LiveBlocks, ...]) -> tuple[str, ...]:
    """Return what held the memory."""
    if not blocks:
        return (
            "What held the memory is not known: torch.cuda.memory._record_memory_history() in the program would tell.",
        )
    named = [
        f"{units.size(one.bytes)} from {place(one.where, 'lines that are not known')}"
        for one in blocks[:NAMED]
    ]
    return (f"Most of it was held by blocks that these lines asked for: {', '.join(named)}.",)


def _advice(last: GpuShortage) -> str:
    """Return what to change."""
    if last.idle_reserve is not None and last.asked is not None and last.idle_reserve >= last.asked:
        return (
            f"{units.size(last.idle_reserve)} were reserved but not in use, in pieces too small for what was asked: "
            "set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before PyTorch 2.9)."
        )
    return (
        "Make the batch smaller and accumulate gradients, or use activation checkpointing (torch.utils.checkpoint) and "
        "bfloat16; shard or shrink the optimizer's state if that holds the memory."
    )


def _host(evidence: Evidence) -> list[Finding]:
    """Return the finding about processes that the kernel killed for want of memory."""
    how = evidence.timeline.run.get("exit")
    memory = how.get("oom_kill") if isinstance(how, Mapping) else None
    if not isinstance(memory, Mapping):
        return []
    pids = memory.get("pids")
    if pids is not None and not pids and not memory.get("command"):
        return []  # the kernel's log names others
    limit = memory.get("limit_bytes")
    where = "container" if memory.get("scope") == "container" else "machine"
    limited = f" (limit {units.size(limit)})" if isinstance(limit, int) else ""
    killed = units.counted(int(memory.get("processes") or 0), "process", "processes")
    return [
        Finding(
            title=f"The {where} ran out of memory{limited}, and the kernel killed "
            + ("the command." if memory.get("command") else f"{killed}."),
            share=0.0,
            saving=(1.0, 1.0),
            evidence=(f"The kernel counts {killed} that it killed for want of memory during this run.",),
            advice="Use fewer DataLoader workers or a smaller prefetch_factor, keep no growing lists in the loop or "
            f"in the data set, or give the {where} more memory.",
            health=True,
            at_least="critical" if memory.get("command") else "major",
        )
    ]
