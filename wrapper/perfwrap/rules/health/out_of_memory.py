"""The run ran out of memory, on the GPU or on the host.

What it finds
    Out-of-memory errors of torch, with the line, the requested and the free memory, and the largest live blocks if the
    program records memory history or a snapshot was imported; and processes that the kernel killed because memory ran
    out.

Why it costs
    The run ended, or a part of its work is lost.

How the gain is estimated
    No time is claimed.

How to fix
    It depends on the cause. Activations: a smaller batch with gradient accumulation, activation checkpointing.
    Fragmentation: expandable segments. A leak: the line that keeps tensors. On the host: fewer workers, less
    prefetching, no growing lists.

When it is wrong
    When the program catches the error and retries with a smaller batch on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.health.gpu_memory import find_gpu_memory
from perfwrap.measures.health.kept_graphs import find_kept_graphs
from perfwrap.measures.health.out_of_memory import GpuShortage, LiveBlocks, find_live_blocks, find_shortages
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.trainers import Trainer, find_trainers
from perfwrap.rules.health import _kept_graphs as kept
from perfwrap.rules.levers import Levers, find_levers
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option, locate, place

NEEDS = ("trainer",)


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    max_named: int = 3
    """How many lines with most live memory are named."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for errors of this trainer, and for processes that the kernel killed."""
    found = _gpu(evidence, trainer.process, trainer, limits)
    if trainer == evidence.get(find_main_trainer):
        trains = {other.process for other in evidence.get(find_trainers)}
        for process in find_shortages(evidence.timeline).keys() - trains:
            found += _gpu(evidence, process, None, limits)
        found += _host(evidence)
    if (
        not found
        and "imported" in evidence.timeline.run
        and not any(gpu.peak for gpu in evidence.get(find_gpu_memory))
    ):
        return NotChecked(
            "Needs a memory snapshot: torch.cuda.memory._record_memory_history(), then "
            "torch.cuda.memory._dump_snapshot()."
        )
    return found or Clear("Memory did not run out.")


def check_run(evidence: Evidence, limits: Limits) -> Answer:
    """Check a run that ended before anything trained."""
    processes = find_shortages(evidence.timeline).keys()
    found = [finding for process in processes for finding in _gpu(evidence, process, None, limits)]
    return [*found, *_host(evidence)] or Clear("Memory did not run out.")


def _gpu(evidence: Evidence, process: int, trainer: Trainer | None, limits: Limits) -> list[Finding]:
    """Return the finding about the last error of one process."""
    shortages = find_shortages(evidence.timeline).get(process, ())
    if not shortages:
        return []
    last = shortages[-1]
    blocks = find_live_blocks(evidence.timeline, process)
    graphs = evidence.get(find_kept_graphs, trainer) if trainer is not None else ()
    levers = Levers() if trainer is None else evidence.get(find_levers, trainer)
    ended = "exit" in evidence.timeline.run and not _ended_well(evidence.timeline.run)
    return [
        Finding(
            title=f"GPU memory ran out at {place(last.where, 'one line')}, which requested {units.size(last.asked)}.",
            share=0.0,
            evidence=(*_counts(last, len(shortages)), *_live(blocks, limits), *kept.words(graphs)),
            options=(Option(kept.advice(graphs), (1.0, 1.0)),) if graphs else _options(last, levers),
            location=locate(last.where),
            health=True,
            min_severity="critical" if ended else "major",
        )
    ]


def _ended_well(run: Mapping[str, Any]) -> bool:
    """Return whether the command ended with exit code 0."""
    how = run.get("exit")
    return isinstance(how, Mapping) and how.get("code") == 0


def _counts(last: GpuShortage, errors: int) -> tuple[str, ...]:
    """Return the memory that was free, in use and in reserve."""
    words = [
        f"{name} {units.size(value)}"
        for name, value in (
            ("free on the GPU", last.free),
            ("in use", last.allocated),
            ("reserved by torch", last.reserved),
        )
        if value is not None
    ]
    many = () if errors == 1 else (f"It was the last of {units.count(errors)} such errors.",)
    return (f"At that moment: {', '.join(words)}.", *many) if words else many


def _live(blocks: tuple[LiveBlocks, ...], limits: Limits) -> tuple[str, ...]:
    """Return what used the memory."""
    if not blocks:
        return (
            "To see what used the memory, call torch.cuda.memory._record_memory_history() in the program.",
        )
    named = [
        f"{units.size(one.bytes)} from {place(one.where, 'unknown lines')}"
        for one in blocks[: limits.max_named]
    ]
    return (f"Most of it was allocated by these lines: {', '.join(named)}.",)


def _options(last: GpuShortage, levers: Levers) -> tuple[Option, ...]:
    """Return the ways to need less memory."""
    nothing = (1.0, 1.0)
    if last.idle_reserve is not None and last.asked is not None and last.idle_reserve >= last.asked:
        return (
            Option(
                "Set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before PyTorch 2.9).",
                nothing,
                f"{units.size(last.idle_reserve)} were reserved but unused, in pieces too small for the request",
                "expandable-segments",
            ),
        )
    half = (Option("Compute in bfloat16.", nothing),) if levers.takes_bfloat16 and not levers.half else ()
    return (
        Option("Use a smaller batch and accumulate gradients.", nothing),
        Option(f"Use {levers.checkpointing}.", nothing),
        *half,
        Option("Shard or shrink the optimizer state, if that uses the memory.", nothing),
    )


def _host(evidence: Evidence) -> list[Finding]:
    """Return the finding about processes that the kernel killed because memory ran out."""
    how = evidence.timeline.run.get("exit")
    memory = how.get("oom_kill") if isinstance(how, Mapping) else None
    if not isinstance(memory, Mapping):
        return []
    pids = memory.get("pids")
    if pids is not None and not pids and not memory.get("command"):
        return []  # the kernel log names other processes
    limit = memory.get("limit_bytes")
    where = "container" if memory.get("scope") == "container" else "machine"
    limited = f" (limit {units.size(limit)})" if isinstance(limit, int) else ""
    killed = units.counted(int(memory.get("processes") or 0), "process", "processes")
    return [
        Finding(
            title=f"The {where} ran out of memory{limited}, and the kernel killed "
            + ("the command." if memory.get("command") else f"{killed}."),
            share=0.0,
            evidence=(f"The kernel killed {killed} during this run because memory ran out.",),
            options=(
                Option("Use fewer DataLoader workers or a smaller prefetch_factor.", (1.0, 1.0)),
                Option("Keep no growing lists in the loop or in the dataset.", (1.0, 1.0)),
                Option(f"Give the {where} more memory.", (1.0, 1.0)),
            ),
            health=True,
            min_severity="critical" if memory.get("command") else "major",
        )
    ]
