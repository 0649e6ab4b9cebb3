"""The evaluation of a model that most training steps contain, such as the accuracy on a whole graph."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.phases import step_evaluations
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer


class StepEvaluation(Struct, frozen=True):
    """The forward passes that evaluate in most steps: their share of the loop, and the line of most of their time."""

    share: float
    where: Line


def find_step_evaluation(evidence: Evidence, trainer: Trainer) -> StepEvaluation | None:
    """Return the evaluation in most steps; None without one, or if its line is unknown."""
    steps = evidence.get(find_steps, trainer)
    forward, phases = steps.events.forward, steps.phases
    chosen = step_evaluations(steps.events, phases)
    if not chosen.any():
        return None
    lengths = forward.end - forward.start
    part = float(lengths[chosen].sum() / lengths[~phases.contain(forward.start)].sum())
    spans = evidence.timeline.spans.filter(
        pl.col("track") == trainer.thread,
        pl.col("operation") == "forward",
        pl.col("start").is_in(forward.start[chosen].tolist()),
        pl.col("file").is_not_null(),
    )
    lines = spans.group_by("file", "line", "function").agg(pl.col("duration").sum())
    if lines.is_empty():
        return None
    file, line, function, _ = lines.sort("duration", "file", "line", descending=[True, False, False]).row(0)
    return StepEvaluation(
        part * evidence.get(find_account, trainer).shares["forward"], Line(file, line, function or "")
    )
