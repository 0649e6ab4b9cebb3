"""Where the time of a step went before and after the edits: the step accounts of two of the timed runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from perfwrap.diagnosis.engine import diagnose
from perfwrap.experiments.plan import BASELINE
from perfwrap.experiments.reading import read_timeline
from perfwrap.experiments.trial import measured
from perfwrap.fixing.search import Search
from perfwrap.run_folder import RunFolder


class StepAccount(Struct, frozen=True):
    """The mean step of the runs of one name (nanoseconds), and the shares of its parts in the last of them."""

    step_ns: float
    shares: Mapping[str, float]


def before_and_after(search: Search) -> tuple[StepAccount | None, StepAccount | None]:
    """Return the accounts of the unchanged program and of that with all kept edits; None where one is unknown."""
    if not search.kept or search.total is None:
        return _account(search, BASELINE), None
    return _account(search, BASELINE), _account(search, search.total.name)


def _account(search: Search, name: str) -> StepAccount | None:
    runs = list(measured(search.trial.runs, name))
    timeline = read_timeline(RunFolder(runs[-1].folder / "run")) if runs else None
    if timeline is None:
        return None
    parts = diagnose(timeline).account
    whole = sum(parts.values())
    steps = np.concatenate([run.reading.steps.duration_ns for run in runs])
    if not whole or not steps.size:
        return None
    return StepAccount(float(steps.mean()), {part: ns / whole for part, ns in parts.items() if ns})
