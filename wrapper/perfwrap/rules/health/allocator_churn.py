"""PyTorch's allocator returns GPU memory to the driver and requests it again, over and over.

What it finds
    In the history of a memory snapshot: at least 10 returns of memory to the driver (segment_free), after which memory
    is requested again at least 10 times, at least a tenth of what was returned.

Why it costs
    PyTorch keeps freed memory for the next step. A return waits for all work of the GPU (cudaFree), and each new
    request (cudaMalloc) takes some hundred microseconds to milliseconds. Both happen in each step if the loop calls
    empty_cache(), if memory is nearly full, or if sizes change.

How the gain is estimated
    No gain is claimed: a snapshot does not contain how long the calls took. A trace does (allocator_retries).

How to fix
    Remove torch.cuda.empty_cache() from the loop; set PYTORCH_ALLOC_CONF=expandable_segments:True; lower the peak (a
    smaller batch, activation checkpointing); use few different sizes.

When it is wrong
    When the history contains the end of one phase and the start of another one, such as a validation between two
    trainings.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.health.gpu_memory import DriverReturns, GpuMemory, HeldLine, find_gpu_memory
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option, Scope, locate, place

NEEDS = ("trainer",)


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_calls: int = 10
    """Returns to the driver, and requests after the first of them."""
    min_again_share: float = 0.1
    """Bytes that are requested again, of those returned."""


NEEDS_HISTORY = NotChecked(
    "Needs a memory snapshot with a history: torch.cuda.memory._record_memory_history(), then _dump_snapshot()."
)


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look at the snapshots beside a training loop, once."""
    if trainer != evidence.get(find_main_trainer):
        return Clear()
    return check_run(evidence, limits)


def check_run(evidence: Evidence, limits: Limits) -> Answer:
    """Look at the history of each snapshot."""
    known = [memory for memory in evidence.get(find_gpu_memory) if memory.returns is not None]
    if not known:
        return NEEDS_HISTORY
    found = [
        _finding(memory, memory.returns)
        for memory in known
        if memory.returns is not None and _is_churn(memory.returns, limits)
    ]
    returned = max(memory.returns.count for memory in known if memory.returns is not None)
    return found or Clear(f"Memory was returned to the driver {units.counted(returned, 'time')}.")


def _is_churn(returns: DriverReturns, limits: Limits) -> bool:
    """Return whether memory went to the driver and back many times."""
    many = min(returns.count, returns.requests) >= limits.min_calls
    return many and returns.requested_bytes >= limits.min_again_share * returns.bytes


def _finding(memory: GpuMemory, returns: DriverReturns) -> Finding:
    """Return the finding about one GPU."""
    line = next((held.where for held in returns.lines if held.where is not None), None)
    at = f", mostly at {place(line, '')}" if line is not None else ""
    setting = "PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before PyTorch 2.9)"
    return Finding(
        title=f"PyTorch returned memory of {memory.device} to the driver {units.counted(returns.count, 'time')}{at}, "
        f"and requested it again {units.counted(returns.requests, 'time')}.",
        share=0.0,
        evidence=(
            f"{units.size(returns.bytes)} were returned and {units.size(returns.requested_bytes)} requested again, "
            f"with at most {units.size(memory.peak)} in use at once.",
            *_named(returns.lines),
        ),
        options=(
            Option(
                "Remove torch.cuda.empty_cache() from the loop.",
                (1.0, 1.0),
                experiment="no-empty-cache",
                details="If the loop does not call it, memory is nearly full: lower the peak.",
            ),
            *(
                ()
                if memory.expandable
                else (Option(f"Set {setting}.", (1.0, 1.0), experiment="expandable-segments"),)
            ),
        ),
        verdict="memory-bound",
        location=locate(line),
        scope=Scope.RECORDING,
        min_severity="major",
    )


def _named(lines: tuple[HeldLine, ...]) -> tuple[str, ...]:
    """Return the lines that were running, if there are several."""
    known = [held for held in lines if held.where is not None][:3]
    named = [f"{place(held.where, '')} ({units.counted(held.blocks, 'time')})" for held in known]
    return (f"It was returned while these lines ran: {', '.join(named)}.",) if len(named) > 1 else ()
