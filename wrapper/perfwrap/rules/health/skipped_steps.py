"""A gradient scaler skips the optimizer step again and again.

What it finds
    Calls of GradScaler.step that skipped the optimizer, at least 1 % of them, counted from the first that did not skip:
    a scaler starts with a scale that is too high on purpose.

Why it costs
    A step is skipped when a gradient is infinite or NaN: its forward and backward pass trained nothing.

How the gain is estimated
    No saving per step is claimed; the share is that of the skipped steps.

How to fix
    If each growth of the scale is followed by a skip: a larger growth_interval (default 2000). If all steps are
    skipped: the loss or a gradient is NaN at any scale. bfloat16 needs no scaler.

When it is wrong
    The count is exact. A few skips early in a training that runs for days do no harm.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.health.scalers import ScalerLine, find_scalers
from perfwrap.measures.precision import BFLOAT16
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.levers import Levers, find_levers
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, NotChecked, Option, locate, named

NEEDS = ("trainer", "steps", "recorder")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_skipped_share: float = 0.01
    """Skipped steps over all steps of the scaler; with the default growth_interval one in 2000 is normal."""
    min_steps: int = 20
    """Steps of the scaler; with fewer, their share says little."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check the steps of the scaler."""
    lines = evidence.get(find_scalers, trainer)
    if not lines:
        return Clear("No gradient scaler was used.")
    worst = lines[0]
    if worst.unknown:
        return NotChecked("The optimizer decides on the GPU whether it skips a step; this is not recorded.")
    if worst.steps < limits.min_steps:
        return NotChecked(f"The scaler stepped only {units.counted(worst.steps, 'time')}.")
    share = worst.skipped / worst.steps
    if share < limits.min_skipped_share:
        return Clear(f"{units.count(worst.skipped)} of {units.counted(worst.steps, 'step')} were skipped.")
    return [_finding(evidence, trainer, worst, share)]


def _finding(evidence: Evidence, trainer: Trainer, line: ScalerLine, share: float) -> Finding:
    """Return the finding about one line."""
    facts = evidence.get(find_facts, trainer.process)
    interval, first = facts.get("scaler/growth_interval"), line.skipped_at_first
    words = [
        f"{units.count(line.skipped)} of {units.counted(line.steps, 'step')} of the scaler were skipped."
    ]
    if first:
        words.append(
            f"{units.counted(first, 'more')} at the start, while the scale adapted, are not counted."
        )
    if interval is not None:
        words.append(f"The scale grows after {interval} steps without a skip (growth_interval).")
    return Finding(
        title=f"{SHARE} of the steps train nothing: {named('the gradient scaler', line.where)} skips them.",
        share=share,
        evidence=tuple(words),
        options=_options(line, interval, evidence.get(find_levers, trainer)),
        location=locate(line.where),
        health=True,
    )


def _options(line: ScalerLine, interval: str | None, levers: Levers) -> tuple[Option, ...]:
    """Return what to change."""
    nothing = (1.0, 1.0)
    if levers.half and levers.half.kind == BFLOAT16:
        return (Option("Remove the scaler: the models compute in bfloat16, which needs none.", nothing),)
    other = (Option("Use bfloat16, which needs no scaler.", nothing),) if levers.takes_bfloat16 else ()
    often = interval is not None and interval.isdecimal() and int(interval) < line.steps / line.skipped * 2
    if line.skipped == line.steps:
        first = Option(
            "Find the operation with torch.autograd.set_detect_anomaly(True).",
            nothing,
            details="All steps were skipped, so the loss or a gradient is NaN or infinite at any scale.",
        )
    elif often:
        edit = (
            f"Raise growth_interval from {interval} (default 2000), so that the scale overflows less often."
        )
        first = Option(edit, nothing)
    else:
        first = Option(
            "Clip gradients after scaler.unscale_(), lower the learning rate, or keep losses and norms in float32.",
            nothing,
        )
    return (first, *other)
