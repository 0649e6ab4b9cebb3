"""Whether a run is too much slower than its baseline: what a continuous integration wants to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perfwrap import units
from perfwrap.compare.comparison import Comparison
from perfwrap.compare.noise import Change

State = Literal["ok", "regression", "not comparable", "too noisy"]


@dataclass(frozen=True)
class Judgement:
    """The answer, and in full sentences why."""

    state: State
    sentence: str


def judge(comparison: Comparison, limit: float) -> Judgement:
    """Say whether a step takes longer by more than ``limit`` (0.05 is five per cent), and not by noise alone.

    ``too noisy`` where nothing was seen, and a regression of the limit's size could not have been.
    """
    if comparison.outcome == "not comparable":
        reasons = " ".join(obstacle.sentence for obstacle in comparison.obstacles)
        return Judgement("not comparable", f"The run cannot be held against its baseline. {reasons}")
    figures = {
        "A step": comparison.typical,
        "The mean step, with all that stands between steps,": comparison.whole,
    }
    known = {what: change for what, change in figures.items() if change is not None}
    for what, change in known.items():
        if change.is_real and change.ratio > 1 + limit:
            return Judgement(
                "regression", f"{what} takes {_told(change)}; {units.share(limit)} more is the limit."
            )
    noise = min(change.noise for change in known.values())
    if noise > limit:
        seen = f"no regression was seen, but less than {units.share(noise)} could not have been"
        return Judgement("too noisy", f"The runs are too noisy for a limit of {units.share(limit)}: {seen}.")
    first = next(iter(known.values()))
    return Judgement("ok", f"A step takes {_told(first)}; {units.share(limit)} more is the limit.")


def _told(change: Change) -> str:
    """Return the change with its noise."""
    times = f"{units.duration(change.before_ns, 3)} before, {units.duration(change.after_ns, 3)} now"
    return f"{units.signed_share(change.ratio - 1)} (noise {units.noise(change.noise)}; {times})"
