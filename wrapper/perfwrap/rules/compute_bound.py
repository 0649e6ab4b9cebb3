"""The model's own work takes nearly all of the time: the good end.

What it finds
    A training loop of which forward pass, backward pass, optimizer and the loss between them take 90 % or
    more. On a GPU the host's account says only who launched the work; there the rule wants utilisation
    samples of 90 % or more on average, and says so; where its kernels were recorded, they must have run during 90 % of
    that time, without the collectives that run alone.

Why it costs
    It does not: nothing is waited for. Going faster now means doing the work itself in less time.

How the saving is worked out
    None is claimed: nothing is wasted around that work.

How to fix
    Next levers, in the order in which they are usually worth trying: torch.compile, bfloat16 autocast, a
    larger batch, a faster device.

When it is wrong
    When the work itself is more than it must be: something worked out again in each forward pass, a loop over rows in
    Python inside of the model, gradients that nobody uses. Only a few such habits have a rule of their own. Where
    py-spy sampled stacks, as it does for half a minute where it is installed, the function of the model or the loss
    with most of them is named, without a judgement: it may well be the work that the model is for. That is for models
    on a CPU. What the recorder's own sampler saw (--sample) is quoted and no line named: loops of Python escape it.
    In a job of several ranks on CPUs, where a backward pass also waits for the other ranks: not checked there.
    On a GPU: utilisation is a duty cycle. It counts the time in which some kernel ran, not how much of the
    GPU that kernel used; a record of kernels tells more, and so do the units' own counters from Hopper on.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import or_

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu_activity import GpuActivity
from perfwrap.measures.intervals import length
from perfwrap.measures.loop import COMPUTE_PARTS, gpu_utilization, trains_on_gpu
from perfwrap.measures.python_gaps import PythonGap
from perfwrap.measures.stacks import OUTSIDE, Sampled
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.windows import find_windows
from perfwrap.rules.kernel_record import mfu, recorded, units_at_work, window
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, NotChecked, locate, place
from perfwrap.rules.sampled import quote_shares

NEEDS = ("trainer",)

COMPUTE_SHARE = 0.90
"""Share of the loop from which the model's own work leaves no room for others; TraceML's figure."""

WORKING_UNITS = 0.5
"""Share of the time below which multiprocessors are mostly empty, where the GPU tells it: no good end."""

BUSY_UTILIZATION = 0.90
"""Mean sampled utilisation from which a GPU counts as busy; the catalogue's figure."""

HOT_SHARE = 0.15
"""Share of the samples from which a line inside of the model is named: it is worth a look, not more."""

LEVERS = "Next levers: torch.compile, bfloat16 autocast, a larger batch, a faster device."
SPREAD = (
    "Samples of stacks found no function of the program's inside of the model or the loss that stands out."
)
FEW = "Hardly any samples of stacks were inside of the model or the loss."
UNSEEN = (
    "What runs inside of forward and backward was not looked at: where py-spy is installed beside perfwrap and may "
    "look, the lines of the model and the loss that take the time are named."
)


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look whether the model's own work leaves room for anything else."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, GpuActivity):
        return _in_kernels(evidence, trainer, gpu)
    few = evidence.missing("steady_steps")
    if few is not None:
        return NotChecked(few)
    if trains_on_gpu(evidence, trainer):
        return _on_gpu(evidence, trainer)
    if len(evidence.trainers) > 1 and trainer.rank is not None:
        return NotChecked(
            "In a job of several ranks the backward pass also waits for the others; how long needs a record of "
            "their collectives."
        )
    account = evidence.account(trainer)
    losses = _losses(evidence, trainer)
    loss = sum(gap.share for gap in losses)
    compute = sum(account.shares[part] for part in COMPUTE_PARTS) + loss
    if compute < COMPUTE_SHARE:
        return Clear(f"The model's own work takes {units.share(compute)} of the loop.")
    parts = ", ".join(f"{part} {units.share(account.shares[part])}" for part in COMPUTE_PARTS)
    words = f"{parts}, the loss and what else runs between forward and backward {units.share(loss)}."
    found = _finding(compute, words)
    # Where another rule accuses the loss, that time is no good end: it speaks for one of them only.
    found = replace(found, claims=reduce(or_, (gap.segments for gap in losses), _at_work()))
    sampled = evidence.sampled_computing(trainer, losses)
    if sampled is not None:
        # Of several trainers each may have another hottest line, and what they share would be told once for each.
        return [_with_lines(found, sampled, len(evidence.trainers) == 1)]
    if evidence.missing("stacks") is None:
        return [replace(found, evidence=(*found.evidence, FEW))]
    if find_windows(evidence.timeline, trainer)[0].size:
        return [found]
    return [replace(found, evidence=(*found.evidence, UNSEEN), look_closer="--py-spy")]


def _losses(evidence: Evidence, trainer: Trainer) -> tuple[PythonGap, ...]:
    """Return the stretches between forward and backward, where the loss function runs."""
    return tuple(
        gap
        for gap in evidence.python_gaps(trainer)
        if gap.after_operation in ("forward", "zero_grad")
        and gap.before_operation in ("backward", "zero_grad")
    )


def _with_lines(found: Finding, sampled: Sampled, is_only: bool) -> Finding:
    """Return the finding with the lines inside of the model and the loss that have most samples, if any stands out."""
    hottest = sampled.functions[0] if sampled.functions else None
    if hottest is None or hottest.count < HOT_SHARE * sampled.count:
        return replace(found, evidence=(*found.evidence, SPREAD))
    if sampled.source != OUTSIDE:
        # A loop of Python of less than five milliseconds has no samples: they fall on the line of torch's after it.
        return replace(found, evidence=(*found.evidence, quote_shares(sampled)), look_closer="--py-spy")
    return replace(
        found,
        evidence=(*found.evidence, quote_shares(sampled)),
        advice=f"See whether {place(hottest.line, '')} must do all that in each step: what never changes can be worked "
        f"out once, a loop over rows be one operation. {LEVERS}",
        location=locate(hottest.line) if is_only else None,
    )


def _in_kernels(evidence: Evidence, trainer: Trainer, gpu: GpuActivity) -> Answer:
    """Judge by the record of the GPU's kernels."""
    computing = (gpu.kernels_busy_ns - length(gpu.exposed_collectives)) / gpu.window_ns
    if computing < BUSY_UTILIZATION:
        return Clear(f"The GPU's kernels computed {units.share(computing)} of the recorded time.")
    words = f"Seen in {window(gpu)}; how much of the GPU each kernel used is not known from that."
    found = _finding(computing, words, "GPU busy: ")
    return [
        replace(
            found,
            title=f"GPU busy: {SHARE} of the recorded time a kernel was computing.",
            evidence=(*found.evidence, mfu(evidence, gpu), *units_at_work(evidence, trainer)),
            of_window=True,
        )
    ]


def _on_gpu(evidence: Evidence, trainer: Trainer) -> Answer:
    """Judge by the samples of the GPU's utilisation."""
    utilization = gpu_utilization(evidence)
    if utilization is None:
        return NotChecked(
            "Whether the GPU was busy needs its utilisation (run with monitors) or a record of kernels."
        )
    if utilization < BUSY_UTILIZATION:
        return Clear(f"The GPU was busy in {units.share(utilization)} of the samples.")
    working = [gpu.activity["sm"] for gpu in evidence.own_gpus(trainer) if "sm" in gpu.activity]
    if working and max(working) < WORKING_UNITS:
        return Clear(
            f"Some kernel ran in {units.share(utilization)} of the samples, but the GPU's multiprocessors worked only "
            f"{units.share(max(working))} of the time."
        )
    words = "That is the duty cycle: the share of time in which any kernel ran at all."
    found = _finding(utilization, words, "GPU busy: ")
    return [replace(found, evidence=(*found.evidence, *units_at_work(evidence, trainer)))]


def _finding(share: float, words: str, prefix: str = "") -> Finding:
    """Return the good end."""
    what = "of the samples a kernel was running" if prefix else "of the training loop is the model's own work"
    return Finding(
        title=f"{prefix}{SHARE} {what}.",
        share=share,
        saving=(1.0, 1.0),
        evidence=(words,),
        advice=f"No time is lost around it; whether that work could be less itself, perfwrap does not judge. {LEVERS}",
        verdict="compute-bound",
        experiment="three-run",
        claims=_at_work(),
        benign=True,
    )


def _at_work() -> pl.Expr:
    """Return the segments of the account in which the model itself is at work."""
    return pl.col("part").is_in([*COMPUTE_PARTS])
