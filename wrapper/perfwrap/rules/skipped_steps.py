"""A gradient scaler skips the optimizer's step again and again.

What it finds
    Calls of GradScaler.step that skipped the optimizer, 1 % of them or more, counted from the first that did not:
    a scaler starts with a scale that is too high on purpose.

Why it costs
    A step is skipped when a gradient is infinite or NaN: its forward and backward pass trained nothing.

How the saving is worked out
    No saving per step is claimed; the share is that of the skipped steps.

How to fix
    Where each growth of the scale is followed by a skip: a larger growth_interval (2000 is the default). Where all
    steps are skipped: the loss or a gradient is NaN whatever the scale. bfloat16 needs no scaler.

When it is wrong
    Never as a count; a few skips early in a training that goes on for days do no harm.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.scalers import ScalerLine
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, NotChecked, locate, named

NEEDS = ("trainer", "steps", "recorder")

LEAST_SHARE = 0.01
"""Skipped steps over all steps of the scaler; with the default growth_interval one in 2000 is normal."""

LEAST_STEPS = 20


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look at what became of the scaler's steps."""
    lines = evidence.scalers(trainer)
    if not lines:
        return Clear("No gradient scaler was used.")
    worst = lines[0]
    if worst.unknown:
        return NotChecked("The optimizer decides on the GPU whether it skips a step, which is not asked.")
    if worst.steps < LEAST_STEPS:
        return NotChecked(f"The scaler stepped {units.counted(worst.steps, 'time')} only.")
    share = worst.skipped / worst.steps
    if share < LEAST_SHARE:
        return Clear(f"{units.count(worst.skipped)} of {units.counted(worst.steps, 'step')} were skipped.")
    return [_finding(evidence, trainer, worst, share)]


def _finding(evidence: Evidence, trainer: Trainer, line: ScalerLine, share: float) -> Finding:
    """Return the finding about one line."""
    facts = evidence.facts(trainer.process)
    interval, first = facts.get("scaler/growth_interval"), line.skipped_at_first
    words = [
        f"{units.count(line.skipped)} of {units.counted(line.steps, 'step')} of the scaler were skipped."
    ]
    if first:
        words.append(
            f"{units.counted(first, 'more')} at the beginning, while the scale settled, are not counted."
        )
    if interval is not None:
        words.append(f"The scale grows after {interval} steps in a row without a skip (growth_interval).")
    return Finding(
        title=f"{SHARE} of the steps train nothing: {named('the gradient scaler', line.where)} skips them.",
        share=share,
        saving=(1.0, 1.0),
        evidence=tuple(words),
        advice=_advice(line, interval),
        location=locate(line.where),
        health=True,
    )


def _advice(line: ScalerLine, interval: str | None) -> str:
    """Return what to change."""
    if line.skipped == line.steps:
        return (
            "No step was taken: the loss or a gradient is NaN or infinite whatever the scale. Find the operation with "
            "torch.autograd.set_detect_anomaly(True), or use bfloat16, which needs no scaler."
        )
    often = interval is not None and interval.isdigit() and int(interval) < line.steps / line.skipped * 2
    if often:
        return (
            f"Raise growth_interval from {interval} (2000 is the default), so that the scale does not overflow again "
            "and again, or use bfloat16, which needs no scaler."
        )
    return (
        "Clip gradients after scaler.unscale_(), lower the learning rate, keep losses and norms in float32, or use "
        "bfloat16, which needs no scaler."
    )
