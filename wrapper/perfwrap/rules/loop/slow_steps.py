"""Some steps take much longer than the others, for a known reason.

What it finds
    A p99 of the steady steps of at least 1.5 times the median, if the extra time of slow steps is at least 2 % of the
    training loop. Each slow step is explained by the part of the account that it has more of. Slow steps because of
    validation are left to validation_share, those because of the program's torch.profiler to program_profiler.

Why it costs
    In a job of several ranks all of them wait for the slow one. In one process, it is time that most steps do not need.

How the gain is estimated
    Measured: the extra time of the slow steps over median ones, as far as one cause explains it. The lower bound is
    nine tenths of it; the upper bound is all of it plus up to six tenths, because nearby code also gets faster: this
    was measured on scripts with the fix.

How to fix
    It depends on the cause. Make code that runs every N steps cheaper, less frequent or asynchronous.

When it is wrong
    When the machine is shared: occasional slow steps without a cause in the program are usually caused by other
    programs. They are reported only if they are regular: the same step of every N, counted through the run or in each
    epoch, far more often than by chance.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_figures import COMPUTE_PARTS, trains_on_gpu
from perfwrap.measures.account.parts import PARTS
from perfwrap.measures.account.what_if import without_measured
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.python_gaps import find_python_gaps
from perfwrap.measures.loop.stacks import Sampled, sampled_gap
from perfwrap.measures.steps.periods import find_period
from perfwrap.measures.steps.slow_steps import OTHER_TRAINING, PROFILED, SlowStep, SlowSteps, find_slow_steps
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import (
    MIN_REPORTED_SHARE,
    MINOR_SHARE,
    SHARE,
    Answer,
    Clear,
    Finding,
    NotChecked,
    Option,
    locate,
    place,
)
from perfwrap.rules.on_gpu import idle_share
from perfwrap.rules.stack_samples import main_function, quote, where

NEEDS = ("steady_steps",)


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    minor_share: float = MINOR_SHARE
    min_reported_share: float = MIN_REPORTED_SHARE
    min_spread: float = 1.5
    """p99 over p50 from which some steps count as slow; between nsys-ai's 1.5 and gpuprof's 2."""
    min_regular_share: float = 0.6
    """Share of the slow steps that must be on the period, and of the period's steps that must be slow; a shared machine
    adds others, and may have its own rhythm for a while."""
    max_chance: float = 0.01
    """Slow steps are regular if the probability that they are so by chance is below this."""
    min_more_calls: float = 4.0
    """Calls of models in the slow steps over those in a normal step, from which their time is that of these calls."""
    few_steps: int = 10
    """Fewer slow steps without a cause in the program are reported with doubt, because other programs have rhythms
    too."""


NOISE = (*COMPUTE_PARTS, "unexplained")
"""Causes without a line: the same work took longer, as it does when other programs use the cores."""

VERDICTS = {
    "data": "data-bound",
    "epoch start": "data-bound",
    "transfer": "transfer-bound",
    "sync": "sync-bound",
    "checkpoint": "checkpoint/validation-bound",
    "gc": "python-bound",
    "python": "python-bound",
}
"""The verdict that each cause supports; none if the same work took longer."""

WAITS = (*COMPUTE_PARTS, "sync", "transfer")
"""Causes in which the host may have waited for a GPU that was at work: they cost no more than the GPU is idle."""

ELSEWHERE = {
    "validation": "mostly because of validation (see validation_share)",
    "profiler": "mostly because of the program's torch.profiler (see program_profiler)",
    "perfwrap": "mostly because perfwrap recorded more in these steps (see profiler_cost)",
    PROFILED: "mostly because the program's torch.profiler records these steps",
    OTHER_TRAINING: "mostly because these steps train something that the others do not",
}
"""Causes that are a choice of the program, or covered by another rule, in words."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for slow steps with a common cause."""
    steps = evidence.get(find_slow_steps, trainer)
    if steps is None:
        return NotChecked("There are no steady steps to compare.")
    spread = f"p99 of the steps is {units.times(steps.spread)} the median"
    if steps.spread < limits.min_spread or steps.share < limits.min_reported_share or not steps.slow:
        return Clear(f"{spread}; slow steps cost {units.share(steps.share)} of the loop.")
    for cause in steps.causes:
        slow = [step for step in steps.slow if step.cause == cause]
        share = sum(step.cause_ns for step in slow) / max(1, evidence.get(find_account, trainer).total_ns)
        if cause in WAITS and trains_on_gpu(evidence, trainer):
            idle = idle_share(evidence, trainer)
            share = share if idle is None else min(share, idle)
        if cause in ELSEWHERE or share < limits.min_reported_share:
            continue
        if cause in COMPUTE_PARTS and _run_more(evidence, trainer, slow, limits):
            continue
        period = find_period(
            [step.index for step in slow],
            evidence.get(find_steps, trainer).table,
            limits.max_chance,
            limits.min_regular_share,
        )
        if period or _stands_out(steps, cause, share, limits):
            sampled = _samples(evidence, trainer, _line(slow)) if cause == "python" else None
            return [_finding(steps, slow, share, period, sampled, limits)]
    most = next(iter(steps.causes))
    if most in ELSEWHERE:
        return Clear(f"{spread}, {ELSEWHERE[most]}.")
    return Clear(f"{spread}, irregularly and without a cause in the program, as on a shared machine.")


def _run_more(evidence: Evidence, trainer: Trainer, slow: list[SlowStep], limits: Limits) -> bool:
    """Return whether the slow steps call models much more often than others: a rollout is work of the training."""
    steps = evidence.get(find_steps, trainer)
    ends = steps.table["end"].to_numpy()
    calls = np.bincount(np.searchsorted(ends, steps.events.forward.start), minlength=ends.size + 1)
    usual = float(np.median(calls[np.flatnonzero(steps.table["detailed"].to_numpy())]))
    return float(np.median(calls[[step.index for step in slow]])) >= limits.min_more_calls * max(1.0, usual)


def _samples(evidence: Evidence, trainer: Trainer, where: Line | None) -> Sampled | None:
    """Return the samples of the longest section of the program's own code after a line."""
    gaps = [gap for gap in evidence.get(find_python_gaps, trainer) if gap.after == where and where]
    return sampled_gap(evidence, trainer, max(gaps, key=lambda gap: gap.share), False) if gaps else None


def _stands_out(steps: SlowSteps, cause: str, share: float, limits: Limits) -> bool:
    """Return whether irregular slow steps of a cause are more than the usual effect of other programs.

    The program's own code is reported by python_overhead, with its lines, unless it is regular.
    """
    noise_ns = sum(excess_ns for name, excess_ns in steps.causes.items() if name in NOISE)
    return cause not in (*NOISE, "python") and share >= limits.minor_share and steps.causes[cause] > noise_ns


def _finding(
    steps: SlowSteps,
    slow: list[SlowStep],
    share: float,
    period: int | None,
    sampled: Sampled | None,
    limits: Limits,
) -> Finding:
    """Return the finding about the slow steps of one cause, with the samples of the code in them."""
    hottest = main_function(sampled)
    cause, line = slow[0].cause, hottest.line if hottest else _line(slow)
    doubtful = cause in NOISE and len(slow) < limits.few_steps
    often, verb = _often(len(slow), period, doubtful)
    longest = units.times(max(step.duration_ns for step in slow) / steps.p50_ns)
    at = f" at {place(line, '')}" if line else ""
    return Finding(
        title=f"{often} {verb} up to {longest} the median, which costs {SHARE} of the training "
        f"loop: {_because(cause)}{f', mostly in {where(hottest)}' if hottest else at}.",
        share=share,
        evidence=(
            f"A median step takes {units.duration(steps.p50_ns)}, p99 {units.duration(steps.p99_ns)}; "
            f"{units.counted(len(slow), 'slow step')} of this kind, e.g. step {units.count(slow[0].index)} "
            f"with {units.duration(slow[0].duration_ns)}.",
            *quote(sampled, "there"),
        ),
        options=(
            Option(
                _advice(cause, f" in {where(hottest)}" if hottest else at, period, hottest is not None),
                without_measured(share),
                details="Train longer first: so few slow steps may be chance." if doubtful else "",
            ),
        ),
        verdict=VERDICTS.get(cause),
        location=locate(line),
        confidence="inferred" if cause in NOISE else "measured",
        claims=_claims(slow, cause),
    )


def _often(count: int, period: int | None, doubtful: bool) -> tuple[str, str]:
    """Return the start of the sentence, which says how often steps are slow, and its verb."""
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
        return "no recorded event explains it"
    return f"more time in {cause}"


def _advice(cause: str, at: str, period: int | None, is_sampled: bool) -> str:
    """Return what to change; ``is_sampled`` is whether it is at that line itself, and not after it."""
    if cause == "python":
        often = f" every {units.count(period)} steps" if period else ""
        after = "" if is_sampled else " after the event"
        return (
            f"Check what the program does{often}{after}{at}: make it cheaper or less frequent, or move it "
            "to a thread."
        )
    if cause in NOISE:
        return (
            "Look for other programs on the machine, or for inputs of varying size: the same work took "
            "longer."
        )
    return f"Check {cause}{at} in the slow steps: `perfwrap explain` has a rule for most causes."


def _claims(slow: list[SlowStep], cause: str) -> pl.Expr | None:
    """Select the segments of the cause in the slow steps."""
    part = "data" if cause == "epoch start" else cause
    if part not in PARTS:
        return None
    return (pl.col("part") == part) & pl.col("step").is_in([step.index for step in slow])
