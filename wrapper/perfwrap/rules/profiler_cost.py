"""perfwrap itself takes more of the step than it should.

What it finds
    A share of the training loop spent in perfwrap's own probes that is above its budget beyond doubt: 5 % for steps
    below half a millisecond, 2 % for longer ones.

Why it costs
    The figures of the report hold for the program with perfwrap in it.

How the saving is worked out
    Where steps are so short that the probes rest now and then, steps with probes are held against those without.
    Elsewhere the records are counted, times what a record was measured to cost. Without perfwrap a step takes
    about that much less.

How to fix
    Nothing in the program: this is never the verdict, and never more than minor. Compare with PERFWRAP_OFF=1,
    which records nothing, and report loops in which perfwrap is this expensive.

When it is wrong
    Where it is estimated, the cost per record comes from another machine; it may be off by a factor of two.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import mean_step_ns
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer, Clear, Finding

NEEDS = ("recorder", "steady_steps")

SHORT_STEP_NS = units.MILLISECOND / 2
BUDGET_SHORT_STEP, BUDGET = 0.05, 0.02
"""perfwrap's targets: at most 5 % of a 0.3 ms step and 2 % of a 1 ms step."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Compare perfwrap's share of the loop with its budget."""
    cost = evidence.own_cost(trainer)
    step_ns = mean_step_ns(evidence, trainer)
    budget = BUDGET_SHORT_STEP if step_ns < SHORT_STEP_NS else BUDGET
    if cost.low <= budget:
        return Clear(
            f"perfwrap takes about {units.share(cost.share)} of the loop ({units.share(cost.low)} to "
            f"{units.share(cost.high)}); its budget is {units.share(budget)}."
        )
    steady = evidence.steps(trainer).steady
    words = [
        f"{units.counted(cost.records, 'record')} in {units.counted(steady, 'step')} of {units.duration(step_ns)}."
    ]
    if not evidence.account(trainer).sums["rest"].any():
        words.append("Each of these steps is recorded in detail; in a longer run most steps are not.")
    return [
        Finding(
            title=f"perfwrap itself takes about {SHARE} of the training loop, more than "
            f"its budget of {units.share(budget)}.",
            share=cost.share,
            saving=(1.0 - min(1.0, cost.high), 1.0 - cost.low),
            evidence=tuple(words),
            advice="Read the other shares with that in mind; nothing in the program needs to change.",
            confidence="inferred",
            claims=pl.col("part") == "perfwrap",
            of_run=True,
        )
    ]
