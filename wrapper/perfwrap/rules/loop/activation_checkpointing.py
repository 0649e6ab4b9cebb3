"""Activation checkpointing computes forward passes a second time.

What it finds
    Checkpoints (torch.utils.checkpoint, reentrant or not, also through a library such as
    gradient_checkpointing_enable) whose forward passes run again in the backward pass for at least 2 % of the
    training loop. The line is the one that calls the checkpoint.

Why it costs
    A checkpoint does not keep the activations of its layers. The backward pass needs them, so it computes their forward
    pass again: about as long as the first one. This trades time for memory.

How the gain is estimated
    Measured: the time of the second forward passes. At best all of it is saved, at worst nothing, because the
    activations may not fit into memory. On a GPU only the host's time in them is known: a gain is claimed if the GPU
    waits for launches at least 30 % of the time. None is claimed if little memory is left or if the memory was not
    recorded.

How to fix
    If memory allows, remove the checkpoint, or call it for fewer layers; where a library calls it, that is an option of
    its model or trainer (gradient_checkpointing). How much memory the activations need is only
    known from a run without it: try one with a few steps.

When it is wrong
    When memory is needed at another time: for longer inputs, a larger batch, or by other processes on the device.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.loop_figures import trains_on_gpu
from perfwrap.measures.account.what_if import best_without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.ordinary_step import find_ordinary_step
from perfwrap.measures.loop.recomputations import (
    MemoryLeft,
    Recomputation,
    find_memory_left,
    find_recomputations,
)
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import HOST_BOUND_SHARE
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, Option, locate, place

NEEDS = ("steady_steps", "recomputations")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    max_lines: int = 3
    """How many lines are named."""
    min_left: float = 1.0
    """Memory that is left over memory that is used, from which a run without checkpoints is worth a try: activations
    may need several times the memory of the rest."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for second forward passes."""
    lines = evidence.get(find_recomputations, trainer)
    share = sum(line.share for line in lines)
    if share < limits.min_reported_share:
        return Clear(f"Second forward passes take {units.share(share)} of the loop.")
    on_gpu = trains_on_gpu(evidence, trainer)
    memory = evidence.get(find_memory_left, trainer)
    has_room = memory is not None and memory.left >= limits.min_left * memory.used
    where = next((line.where for line in lines if line.where is not None), None)
    at = f"at {place(where, 'an unknown line')}"
    waits = _waits_for_launches(evidence, trainer) if on_gpu else 0.0
    title = f"{SHARE} of the training loop computes forward passes again: activation checkpointing {at}."
    is_gain = has_room and (waits > 0.0 or not on_gpu)
    if on_gpu:
        title = f"Activation checkpointing {at} computes forward passes again in the backward pass."
    return [
        Finding(
            title=title,
            share=share,
            evidence=(
                *_words(lines, on_gpu, share, limits),
                *((_less_to_launch(waits),) if waits else ()),
                _memory_words(memory, on_gpu),
            ),
            options=_options(at, memory, has_room, _best(share, waits, on_gpu) if is_gain else 1.0),
            verdict="compute-bound" if has_room and not on_gpu else None,
            location=locate(where),
            confidence="inferred",
            max_severity="minor",
            informational=not is_gain,
        )
    ]


def _best(share: float, waits: float, on_gpu: bool) -> float:
    """Return the step-time ratio without second forward passes, at best."""
    return 1.0 - min(share, waits) if on_gpu else best_without(share)


def _waits_for_launches(evidence: Evidence, trainer: Trainer) -> float:
    """Return the share of the loop in which the GPU waits for launches, if the host decides how long a step takes."""
    step = evidence.get(find_ordinary_step, trainer)
    waits = step.idle.get("dispatch", 0.0) if step and step.recorded_ns else 0.0
    return waits if waits >= HOST_BOUND_SHARE else 0.0


def _less_to_launch(waits: float) -> str:
    """Return why a second forward pass costs time here, whatever the GPU needs for it."""
    return f"The GPU waits for launches {units.share(waits)} of the time: without the second passes there are fewer."


def _words(lines: tuple[Recomputation, ...], on_gpu: bool, share: float, limits: Limits) -> tuple[str, ...]:
    """Return how often each line's checkpoints are computed again."""
    named = ", ".join(
        f"{place(line.where, 'an unknown line')} {units.share(line.share)} (checkpoints per step: "
        f"{units.number(line.per_step)})"
        for line in lines[: limits.max_lines]
    )
    if on_gpu:
        return (
            f"The host launches them for {units.share(share)} of the loop; how long the GPU computes them was not "
            "recorded. It is usually as long as their first forward pass.",
            f"By line: {named}.",
        )
    return (f"By line that calls the checkpoint: {named}.",)


def _memory_words(memory: MemoryLeft | None, on_gpu: bool) -> str:
    """Return what is known of the memory."""
    if memory is None:
        return "How much memory was used was not recorded."
    what = "GPU memory" if on_gpu else "the process's memory"
    return f"At most {units.size(memory.used)} of {what} were in use, and {units.size(memory.left)} more were free."


LIBRARY = "If a library calls it, look for its option, such as gradient_checkpointing."


def _options(at: str, memory: MemoryLeft | None, has_room: bool, best: float) -> tuple[Option, ...]:
    """Return what to try, and when; ``best`` is the step-time ratio without it."""
    nothing = (1.0, 1.0)
    if memory is None:
        edit = f"Remove it {at} only if you know that the activations fit into memory."
        return (Option(edit, nothing, details="Checkpointing trades time for memory."),)
    if not has_room:
        return (
            Option(
                f"Keep it {at}, or call it for fewer layers.",
                nothing,
                details="Checkpointing trades time for memory, and little memory is free.",
            ),
        )
    return (
        Option(
            f"Try a few steps without it {at}, and compare the peak memory.",
            (best, 1.0),
            f"{units.size(memory.left)} of memory are free",
            details=f"Checkpointing trades time for memory. {LIBRARY}",
        ),
        Option(f"Call it {at} for fewer layers.", (1.0 - (1.0 - best) / 2, 1.0)),
    )
