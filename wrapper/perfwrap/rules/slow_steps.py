"""Some steps take far longer than the others, and for a reason.

What it finds
    A p99 of the steady steps of 1.5 times the median or more, when the time beyond as many median steps is
    2 % of the training loop or more. Each slow step is explained by the part of the account that it has more
    of. Steps that validate are left to validation_share, which says how much of that is a choice.

Why it costs
    In a job of several ranks all of them wait for the slow one. Alone, it is time that most steps do without.

How the saving is worked out
    Measured: the time of the slow steps beyond as many median ones, as far as one cause explains it. At worst
    nine tenths of it go; at best all of it, and up to three tenths more, as what stands beside it runs faster then:
    scripts that were mended by hand gained so much.

How to fix
    By cause: what comes every N steps in the program's own code should be made cheaper, rarer or
    asynchronous.

When it is wrong
    When the machine is shared: steps that are slow now and then because the same work took longer are what
    other programs leave over. They are not reported, unless they come regularly: on the same of every so many steps,
    counted through the run or in each epoch, far more often than chance would have it.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.lines import Line
from perfwrap.measures.loop import COMPUTE_PARTS
from perfwrap.measures.parts import PARTS
from perfwrap.measures.periods import find_period
from perfwrap.measures.slow_steps import OTHER_TRAINING, SlowStep, SlowSteps
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import without_measured
from perfwrap.rules.model import (
    MINOR_SHARE,
    QUIET_SHARE,
    SHARE,
    Answer,
    Clear,
    Finding,
    NotChecked,
    locate,
    place,
)

NEEDS = ("steady_steps",)

SPREAD = 1.5
"""p99 over p50 from which some steps count as slow; the catalogue's figure, between nsys-ai's 1.5 and
gpuprof's 2."""

NOISE = (*COMPUTE_PARTS, "unexplained")
"""Causes that are nobody's line: the same work took longer, as it does when other programs want the cores."""

VERDICTS = {
    "data": "data-bound",
    "epoch start": "data-bound",
    "transfer": "transfer-bound",
    "sync": "sync-bound",
    "checkpoint": "checkpoint/validation-bound",
    "gc": "python-bound",
    "python": "python-bound",
}
"""The verdict that each cause speaks for; that the same work took longer speaks for none."""

ELSEWHERE = {
    "validation": "mostly for validation, which validation_share judges",
    OTHER_TRAINING: "mostly since these train something that the others do not",
}
"""Causes that are a choice of the program's, or what another rule judges, in words."""

REGULAR = 0.6
"""Share of the slow steps that must lie on a period, and of the period's steps that must be slow; a shared machine adds
others, and has rhythms of its own for a while."""

CHANCE = 0.01
"""Slow steps come regularly when chance would put them so with a probability below this."""

FEW = 10
"""Slow steps for no reason in the program are told with doubt when they are fewer: other programs have rhythms, too."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for slow steps with a common cause."""
    steps = evidence.slow_steps(trainer)
    if steps is None:
        return NotChecked("There are no steady steps to compare.")
    spread = f"p99 of the steps is {units.times(steps.spread)} the median"
    if steps.spread < SPREAD or steps.share < QUIET_SHARE or not steps.slow:
        return Clear(f"{spread}; slow steps cost {units.share(steps.share)} of the loop.")
    for cause in steps.causes:
        slow = [step for step in steps.slow if step.cause == cause]
        share = sum(step.cause_ns for step in slow) / max(1, evidence.account(trainer).total_ns)
        if cause in ELSEWHERE or share < QUIET_SHARE:
            continue
        period = find_period([step.index for step in slow], evidence.steps(trainer).table, CHANCE, REGULAR)
        if period or _stands_out(steps, cause, share):
            return [_finding(steps, slow, share, period)]
    most = next(iter(steps.causes))
    if most in ELSEWHERE:
        return Clear(f"{spread}, {ELSEWHERE[most]}.")
    return Clear(f"{spread}, irregularly and for no reason in the program: what a shared machine does.")


def _stands_out(steps: SlowSteps, cause: str, share: float) -> bool:
    """Say whether irregular slow steps of a cause are more than what other programs leave over.

    The program's own code is told by python_overhead, with its lines, unless it comes regularly.
    """
    noise_ns = sum(excess_ns for name, excess_ns in steps.causes.items() if name in NOISE)
    return cause not in (*NOISE, "python") and share >= MINOR_SHARE and steps.causes[cause] > noise_ns


def _finding(steps: SlowSteps, slow: list[SlowStep], share: float, period: int | None) -> Finding:
    """Return the finding about the slow steps of one cause."""
    cause, where = slow[0].cause, _line(slow)
    doubtful = cause in NOISE and len(slow) < FEW
    often, verb = _often(len(slow), period, doubtful)
    longest = units.times(max(step.duration_ns for step in slow) / steps.p50_ns)
    at = f" at {place(where, '')}" if where else ""
    return Finding(
        title=f"{often} {verb} up to {longest} the median, which costs {SHARE} of the training "
        f"loop: {_because(cause)}{at}.",
        share=share,
        saving=without_measured(share),
        evidence=(
            f"A median step takes {units.duration(steps.p50_ns)}, p99 {units.duration(steps.p99_ns)}; "
            f"{units.counted(len(slow), 'slow step')} of this kind, e.g. step {units.count(slow[0].index)} "
            f"with {units.duration(slow[0].duration_ns)}.",
        ),
        advice=("Let it run longer first: so few may be an accident. " if doubtful else "")
        + _advice(cause, at, period),
        verdict=VERDICTS.get(cause),
        location=locate(where),
        confidence="inferred" if cause in NOISE else "measured",
        claims=_claims(slow, cause),
    )


def _often(count: int, period: int | None, doubtful: bool) -> tuple[str, str]:
    """Return the beginning of the sentence, which says how often steps are slow, and its verb."""
    if period and not doubtful:
        return f"Every {units.ordinal(period)} step", "takes"
    steps, verb = units.counted(count, "step"), "takes" if count == 1 else "take"
    return f"{steps}, perhaps every {units.ordinal(period)}," if period else steps, verb


def _line(slow: list[SlowStep]) -> Line | None:
    """Return the line that most slow steps of the cause name."""
    lines = [step.where for step in slow if step.where is not None]
    return max(lines, key=lines.count) if lines else None


def _because(cause: str) -> str:
    """Return the cause as the end of a sentence."""
    if cause == "python":
        return "the program's own code"
    if cause == "unexplained":
        return "nothing that was recorded explains it"
    return f"more time in {cause}"


def _advice(cause: str, at: str, period: int | None) -> str:
    """Return what to change."""
    if cause == "python":
        often = f" every {units.count(period)} steps" if period else ""
        return (
            f"Look at what the program does{often} after the event{at}: make it cheaper, rarer, or hand it "
            "to a thread."
        )
    if cause in NOISE:
        return (
            "The same work took longer: look for other programs on the machine, or for inputs of varying "
            "size."
        )
    return f"Look at {cause}{at} in the slow steps: `perfwrap explain` has a rule for most causes."


def _claims(slow: list[SlowStep], cause: str) -> pl.Expr | None:
    """Return the segments of the cause in the slow steps."""
    part = "data" if cause == "epoch start" else cause
    if part not in PARTS:
        return None
    return (pl.col("part") == part) & pl.col("step").is_in([step.index for step in slow])
