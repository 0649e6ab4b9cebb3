"""A loop inside the model or the loss computes in many passes what one operation could compute.

What it finds
    On a CPU, a line of a model or a loss function with at least 10 % of py-spy's samples of the training thread, in a
    for loop whose passes do not depend on each other: none reads what the one before it computed, other than to add
    to it. Loops over layers, and over the time steps of a recurrence, are not of this kind.

Why it costs
    Each pass calls the same operations on a small part of the data. Calls of small operations cost more than their
    arithmetic, and each one comes again in the backward pass.

How the gain is estimated
    The upper bound is nine tenths of the time in the loop, with as large a part of the backward pass as the loop has of
    the model and the loss. The lower bound is nothing: how much faster one operation is depends on the sizes.

How to fix
    Stack the inputs of all passes and call the operations once: a batch dimension instead of a loop, a mask instead of
    one selection per sample.

When it is wrong
    When a pass works on large tensors, so that the calls do not matter, or when the passes need too much memory at
    once. The source is read as it is on the disk; a file that has changed since the run gives nothing.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import trains_on_gpu
from perfwrap.measures.dataflow.wasted_work import LOOP
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.ordinary_step import find_ordinary_step
from perfwrap.measures.loop.model_loops import find_model_loop
from perfwrap.measures.loop.python_gaps import find_loss_gaps
from perfwrap.measures.loop.stacks import OUTSIDE, HotFunction, Sampled, sampled_computing
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, NotChecked, Option, locate, place
from perfwrap.rules.stack_samples import JOINED, join_passes, where
from perfwrap.rules.wasted_step import explains

NEEDS = ("phases", "steady_steps", "stacks")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_share: float = 0.10
    """Share of the samples of the training thread from which a loop is reported."""
    max_module_share: float = 0.5
    """Share of a line's samples in modules that it calls, above which a pass is work of a model and no small operation:
    joining passes may bring little."""
    min_launching_share: float = 0.5
    """Share of the time in which a GPU waits for launches, from which the host's time is that of the model."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for a hot line of the model or the loss in a loop."""
    if trains_on_gpu(evidence, trainer) and not _host_decides(evidence, trainer, limits):
        return NotChecked("The GPU is busy, so samples of the host do not show the time of the model.")
    sampled = sampled_computing(evidence, trainer, evidence.get(find_loss_gaps, trainer))
    if sampled is None or sampled.source != OUTSIDE:
        return NotChecked("Needs samples by py-spy inside the model or the loss.")
    for hot in (*sampled.functions, *reversed(sampled.common)):
        if hot.count >= limits.min_share * sampled.count:
            loop = find_model_loop(evidence, trainer, hot.line)
            if loop is not None and explains(evidence, trainer, (LOOP,), hot.line):
                return Clear("Explained by loop_of_small_operations.")
            if loop is not None:
                return [_finding(hot, loop, sampled, _backward_of(evidence, trainer, hot, sampled), limits)]
    return Clear("No line of the model or the loss with many samples is in a loop of independent passes.")


def _host_decides(evidence: Evidence, trainer: Trainer, limits: Limits) -> bool:
    """Return whether the GPU mostly waits for the host to launch, so that the host's time is that of the model."""
    step = evidence.get(find_ordinary_step, trainer)
    return step is not None and step.idle.get("dispatch", 0.0) >= limits.min_launching_share


def _backward_of(evidence: Evidence, trainer: Trainer, hot: HotFunction, sampled: Sampled) -> float:
    """Return the share of the training loop that a line's part of the backward pass takes, by its part of the model."""
    shares = evidence.get(find_account, trainer).shares
    share = hot.count / sampled.count
    model = shares["forward"] + sum(gap.share for gap in evidence.get(find_loss_gaps, trainer))
    return shares["backward"] * min(1.0, share / max(share, model))


def _finding(hot: HotFunction, loop: int, sampled: Sampled, backward: float, limits: Limits) -> Finding:
    """Return the finding about the loop around a line; ``backward`` is the share of its part of the backward pass."""
    share = hot.count / sampled.count
    calls_modules = hot.library is not None and hot.library.in_modules > limits.max_module_share * hot.on_line
    return Finding(
        title=f"{SHARE} of the training loop is a loop inside the model or the loss, at {place(hot.line, '')}.",
        share=share,
        evidence=(
            f"{units.count(hot.count)} of {units.count(sampled.count)} samples of the training thread were in "
            f"{where(hot)} (sampled by py-spy).",
            f"The loop begins at line {loop}, and no pass reads what the one before it computed. Its backward pass "
            "comes on top.",
        ),
        options=(
            Option(
                join_passes(hot, loop),
                (1.0 - JOINED * min(1.0, share + backward), 1.0),
                details="Its passes call modules: joining them helps only if they are small."
                if calls_modules
                else "",
            ),
        ),
        verdict="compute-bound",
        location=locate(hot.line),
        confidence="inferred",
        max_severity="minor" if calls_modules else "critical",
    )
