"""perfwrap itself takes more time than its budget.

What it finds
    A share of the training loop in perfwrap's own probes that is certainly above the budget: 5 % for steps below
    0.5 ms, 2 % for longer ones.

Why it costs
    The figures of the report are those of the program with perfwrap in it.

How the gain is estimated
    If steps are so short that perfwrap pauses detailed recording, steps with and without it are compared. Otherwise the
    number of records is multiplied by the measured cost of one record. Without perfwrap a step takes about that much
    less.

How to fix
    Change nothing in the program: this is never the verdict and at most minor. Compare with PERFWRAP_OFF=1, which
    records nothing, and report loops in which perfwrap is this expensive.

When it is wrong
    If estimated, the cost per record comes from another machine and may be wrong by a factor of two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import mean_step_ns
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.recorder.own_cost import find_own_cost
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, Option, Scope

NEEDS = ("recorder", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    short_step_ns: float = units.MILLISECOND / 2
    """Step time below which ``budget_short_step`` counts, else ``budget``."""
    budget_short_step: float = 0.05
    budget: float = 0.02
    """perfwrap's targets: at most 5 % of a 0.3 ms step and 2 % of a 1 ms step."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Compare perfwrap's share of the loop with its budget."""
    cost = evidence.get(find_own_cost, trainer)
    step_ns = mean_step_ns(evidence, trainer)
    budget = limits.budget_short_step if step_ns < limits.short_step_ns else limits.budget
    if cost.low <= budget:
        return Clear(
            f"perfwrap takes about {units.share(cost.share)} of the loop ({units.share(cost.low)} to "
            f"{units.share(cost.high)}); the budget is {units.share(budget)}."
        )
    if _records_all(evidence.timeline.run):
        return Clear(
            f"perfwrap takes about {units.share(cost.share)} of the loop: every step was recorded in detail, as "
            "asked for."
        )
    steady = evidence.get(find_steps, trainer).steady
    words = [
        f"{units.counted(cost.records, 'record')} in {units.counted(steady, 'step')} of {units.duration(step_ns)}."
    ]
    if not evidence.get(find_account, trainer).sums["rest"].any():
        words.append("Every step was recorded in detail; in a longer run most steps are not.")
    return [
        Finding(
            title=f"perfwrap itself takes about {SHARE} of the training loop, more than "
            f"its budget of {units.share(budget)}.",
            share=cost.share,
            evidence=tuple(words),
            options=(
                Option(
                    "Change nothing in the program, but keep this cost in mind when you read the other shares.",
                    (1.0 - min(1.0, cost.high), 1.0 - cost.low),
                ),
            ),
            confidence="inferred",
            claims=pl.col("part") == "perfwrap",
            scope=Scope.RUN,
        )
    ]


def _records_all(run: Mapping[str, Any]) -> bool:
    """Return whether the run was asked for detail of every step: it is a trial, or was inspected."""
    options = run.get("options")
    if not isinstance(options, dict):
        return False
    trial = options.get("trial")
    return bool(options.get("inspect") or (isinstance(trial, dict) and trial.get("steps")))
