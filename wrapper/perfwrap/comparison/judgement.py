"""Whether a run is too much slower than its baseline: the result of `perfwrap check`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perfwrap import units
from perfwrap.comparison.comparing import Comparison
from perfwrap.comparison.noise import Change

State = Literal["ok", "regression", "not comparable", "too noisy"]


@dataclass(frozen=True)
class Judgement:
    """The result, and the reason in full sentences."""

    state: State
    sentence: str


def judge(comparison: Comparison, limit: float) -> Judgement:
    """Return whether a step takes longer by more than ``limit`` (0.05 is 5 %) and by more than the noise.

    ``too noisy``: no regression was seen, but the noise could hide a regression of the size of the limit.
    """
    if comparison.outcome == "not comparable":
        reasons = " ".join(obstacle.sentence for obstacle in comparison.obstacles)
        return Judgement("not comparable", f"The run cannot be compared with its baseline. {reasons}")
    figures = {
        "A step": comparison.typical,
        "The mean step, including the time between steps,": comparison.whole,
    }
    known = {what: change for what, change in figures.items() if change is not None}
    for what, change in known.items():
        if change.is_real and change.ratio > 1 + limit:
            return Judgement(
                "regression", f"{what} takes {_words(change)}; the limit is {units.share(limit)} more."
            )
    noise = min(change.noise for change in known.values())
    if noise > limit:
        seen = f"no regression was seen, but one of less than {units.share(noise)} would be hidden by noise"
        return Judgement("too noisy", f"The runs are too noisy for a limit of {units.share(limit)}: {seen}.")
    first = next(iter(known.values()))
    return Judgement("ok", f"A step takes {_words(first)}; the limit is {units.share(limit)} more.")


def _words(change: Change) -> str:
    """Return the change with its noise."""
    times = f"{units.duration(change.before_ns, 3)} before, {units.duration(change.after_ns, 3)} now"
    return f"{units.signed_share(change.ratio - 1)} (noise {units.noise(change.noise)}; {times})"
