"""Two runs, or several of each side: whether the later one's steps take longer, and what else is different."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from perfwrap import units
from perfwrap.compare.differences import (
    ConditionChange,
    FindingChange,
    PartChange,
    condition_changes,
    finding_changes,
    part_changes,
)
from perfwrap.compare.noise import Change, Stretches, typical, whole
from perfwrap.compare.obstacles import ALLOWABLE, Obstacle, Side, find_cautions, find_obstacles

Outcome = Literal["slower", "faster", "mixed", "same", "not comparable"]


@dataclass(frozen=True)
class Comparison:
    """What changed from one side to the other, each given by the names of its runs. ``typical`` is the median step,
    ``whole`` the mean one with all between steps; both are None where there are too few steps to tell. ``obstacles``
    are those that nobody allowed.
    """

    before_runs: tuple[str, ...]
    after_runs: tuple[str, ...]
    typical: Change | None
    whole: Change | None
    obstacles: tuple[Obstacle, ...]
    allowed: tuple[Obstacle, ...]
    cautions: tuple[str, ...]
    parts: tuple[PartChange, ...]
    findings: tuple[FindingChange, ...]
    conditions: tuple[ConditionChange, ...]

    @property
    def before(self) -> str:
        """The names of the first side's runs."""
        return ", ".join(self.before_runs)

    @property
    def after(self) -> str:
        """The names of the second side's runs."""
        return ", ".join(self.after_runs)

    @property
    def outcome(self) -> Outcome:
        """What the comparison comes to: a difference counts when it is more than noise."""
        if self.obstacles or self.typical is None or self.whole is None:
            return "not comparable"
        real = [change.ratio for change in (self.typical, self.whole) if change.is_real]
        if not real:
            return "same"
        if min(real) < 1 < max(real):
            return "mixed"
        return "slower" if real[0] > 1 else "faster"

    @property
    def told(self) -> Change | None:
        """The figure that says most: the typical step's, or the mean one's where only that one moved."""
        if self.typical is not None and self.whole is not None:
            return self.whole if self.whole.is_real and not self.typical.is_real else self.typical
        return None

    @property
    def sentence(self) -> str:
        """The outcome in one or two sentences."""
        if self.outcome == "not comparable":
            return "No conclusion: the runs are not comparable."
        if self.told is None or self.typical is None or self.whole is None:
            return ""
        if self.outcome == "same":
            noise = units.noise(min(self.typical.noise, self.whole.noise))
            return f"No difference beyond the noise ({noise})."
        if self.outcome == "mixed":
            return (
                f"The median step takes {units.share(self.typical.ratio)} of what it took, the mean step, with all "
                f"that stands between steps, {units.share(self.whole.ratio)}."
            )
        what = "the mean step, with all that stands between steps," if self.told is self.whole else "a step"
        between = f"{_change(self.told.low)} to {_change(self.told.high)}"
        if self.told.high < 1:
            between = f"{units.share(1 - self.told.high)} to {units.share(1 - self.told.low)}"
        elif self.told.high < 2:
            between = f"{units.share(self.told.low - 1)} to {units.share(self.told.high - 1)}"
        return f"{self.outcome.capitalize()}: {what} takes {_change(self.told.ratio)} ({between})."


def compare(before: Side, after: Side, allow: Collection[str] = ()) -> Comparison:
    """Compare two sides, each of one run or several of the same; ``allow`` names obstacles that are meant."""
    old, new = (tuple(document for _, document in side) for side in (before, after))
    first, second = ([_stretches(document) for document in side] for side in (old, new))
    meant = set(allow) & set(ALLOWABLE)
    found = find_obstacles(before, after)
    middle, mean = typical(first, second), whole(first, second)
    if middle is None and not any(obstacle.kind == "steps" for obstacle in found):
        few = " and ".join(
            units.counted(document["steps"]["steady"], "steady step") for document in (*old, *new)
        )
        found += (Obstacle("steps", f"The runs are too short or too unlike in length: {few}."),)
    return Comparison(
        before_runs=tuple(name for name, _ in before),
        after_runs=tuple(name for name, _ in after),
        typical=middle,
        whole=mean,
        obstacles=tuple(obstacle for obstacle in found if obstacle.kind not in meant),
        allowed=tuple(obstacle for obstacle in found if obstacle.kind in meant),
        cautions=find_cautions(before, after) + _single(before, after, middle, mean),
        parts=part_changes(old, new, mean),
        findings=finding_changes(old, new),
        conditions=condition_changes(old, new),
    )


def _single(before: Side, after: Side, *changes: Change | None) -> tuple[str, ...]:
    """Say of a difference between two single runs what they cannot tell."""
    if len(before) == len(after) == 1 and any(change is not None and change.is_real for change in changes):
        return (
            "How much equal runs differ here is not known from one run of each. Several, made in turn, tell it: "
            "perfwrap compare a1,a2,a3 b1,b2,b3",
        )
    return ()


def _stretches(document: Mapping[str, Any]) -> Stretches:
    """Return the step times of a run."""
    told = document["steps"]["stretches"]
    return Stretches(told["steps"], tuple(told["mean_ns"]))


def _change(ratio: float) -> str:
    """Return e.g. ``12 % longer`` or ``3.1 % less``."""
    if ratio >= 1:
        return f"{units.share(ratio - 1)} longer" if ratio < 2 else f"{units.times(ratio)} as long"
    return f"{units.share(1 - ratio)} less"
