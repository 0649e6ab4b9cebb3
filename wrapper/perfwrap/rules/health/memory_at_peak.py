"""What used the GPU's memory when most of it was in use, by line.

What it finds
    In a memory snapshot: the maximum that PyTorch's allocator had in use while the history was recorded, and the lines
    of the program that requested the blocks of that moment. Without a history: the same for the moment of the snapshot.

Why it costs
    The peak decides how large a batch or a model fits. It costs no time by itself.

How the gain is estimated
    No gain is claimed.

How to fix
    Activations: activation checkpointing, a smaller batch with gradient accumulation. Gradients and optimizer states:
    bfloat16, an optimizer with a smaller state, sharding. Reserve that cannot be used: expandable segments.

When it is wrong
    When the history covers only a part of a step. The lines are those that requested memory, not those that keep it.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.health.gpu_memory import GpuMemory, HeldLine, find_gpu_memory
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option, Scope, locate, place

NEEDS = ("trainer",)
MAX_LINES = 4
"""How many lines of one function are named."""


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    max_named: int = 5
    """How many lines are named."""
    min_named_share: float = 0.02
    """Share of the memory from which a line is named."""
    unusable_share: float = 0.2
    """Share of the reserved memory that is unused between live blocks, from which expandable segments are advised."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look at the snapshots beside a training loop, once."""
    if trainer != evidence.get(find_main_trainer):
        return Clear()
    return check_run(evidence, limits)


def check_run(evidence: Evidence, limits: Limits) -> Answer:
    """Describe each snapshot."""
    found = [_finding(memory, limits) for memory in evidence.get(find_gpu_memory) if memory.reserved]
    return found or NotChecked("Needs a memory snapshot: torch.cuda.memory._dump_snapshot().")


def _finding(memory: GpuMemory, limits: Limits) -> Finding:
    """Return what used the memory of one GPU."""
    lines = memory.peak_lines or memory.lines
    used = memory.peak if memory.peak_lines and memory.peak else memory.allocated
    first = next((held for held in lines if held.where is not None), None)
    when = "At the peak" if memory.peak_lines else "When the snapshot was taken"
    origin, size = _largest(lines)
    most = f", {units.share(min(1.0, size / used))} of it from {origin}" if origin and used else ""
    stuck = memory.stuck / memory.reserved
    return Finding(
        title=f"{when}, {units.size(used)} of {memory.device}'s memory were in use{most}.",
        share=0.0,
        evidence=(
            *_named(lines, used, limits),
            f"PyTorch had {units.size(memory.reserved)} reserved when the snapshot was taken, with "
            f"{units.size(memory.allocated)} in use.",
            *(
                (f"{units.share(stuck)} of that is unused between live blocks, so it cannot be returned.",)
                if stuck >= limits.unusable_share
                else ()
            ),
        ),
        options=_options(memory, origin, stuck >= limits.unusable_share),
        verdict="memory-use",
        location=locate(first.where) if first else None,
        scope=Scope.RECORDING,
        informational=True,
    )


def _options(memory: GpuMemory, origin: str, is_stuck: bool) -> tuple[Option, ...]:
    """Return what lowers the peak."""
    nothing = (1.0, 1.0)
    setting = "PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before PyTorch 2.9)"
    expandable = (
        (Option(f"Set {setting}.", nothing, experiment="expandable-segments"),)
        if is_stuck and not memory.expandable
        else ()
    )
    if not origin:
        history = "Call torch.cuda.memory._record_memory_history() at the start, which records the lines."
        return (*expandable, Option(history, nothing))
    return (
        *expandable,
        Option(f"To lower the peak, start with what {origin} allocates.", nothing),
        Option("Use activation checkpointing, or a smaller batch and gradient accumulation.", nothing),
        Option("Use bfloat16, or an optimizer with a smaller state.", nothing),
    )


def _largest(lines: tuple[HeldLine, ...]) -> tuple[str, int]:
    """Return the function of the program, or what is known instead, with most memory, and its bytes; empty if unknown.

    A function that requested it at several lines counts as one: an optimizer has a line for each of its states.
    """
    groups: dict[tuple[str, str], list[HeldLine]] = {}
    for held in lines:
        if held.where is not None:
            groups.setdefault((held.where.file, held.where.function), []).append(held)
        elif held.what:
            groups.setdefault(("", held.what), []).append(held)
    if not groups:
        return "", 0
    group = max(groups.values(), key=lambda each: sum(held.bytes for held in each))
    size = sum(held.bytes for held in group)
    first = group[0]
    if len(group) == 1 or first.where is None:
        return _origin(first), size
    named = ", ".join(str(held.where.line) for held in group[1:MAX_LINES] if held.where is not None)
    more = " and others" if len(group) > MAX_LINES else ""
    return f"{first.where.function} at {_origin(first)}, {named}{more}", size


def _named(lines: tuple[HeldLine, ...], used: int, limits: Limits) -> tuple[str, ...]:
    """Return the lines with most memory in one sentence; nothing if none was recorded."""
    if not _largest(lines)[0]:
        return ()
    named = [
        f"{units.size(held.bytes)} from {_origin(held)}"
        for held in lines[: limits.max_named]
        if held.bytes >= limits.min_named_share * used
    ]
    return (f"By the lines that requested it: {', '.join(named)}.",) if named else ()


def _origin(held: HeldLine) -> str:
    """Return what requested memory, in words."""
    if held.where is not None:
        return place(held.where, "")
    return f"the {held.what}" if held.what else "lines that were not recorded"
