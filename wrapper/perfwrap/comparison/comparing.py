"""Compare two runs, or several of each side: whether steps take longer, and what else is different."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from perfwrap import units
from perfwrap.comparison.differences import (
    ConditionChange,
    FindingChange,
    PartChange,
    condition_changes,
    finding_changes,
    part_changes,
)
from perfwrap.comparison.noise import Change, StepBlocks, typical, whole
from perfwrap.comparison.obstacles import ALLOWABLE, Obstacle, Side, find_cautions, find_obstacles

Outcome = Literal["slower", "faster", "mixed", "same", "not comparable"]


@dataclass(frozen=True)
class Comparison:
    """What changed from one side to the other, each given by the names of its runs. ``typical`` is the median step,
    ``whole`` the mean step including the time between steps; both are None if there are too few steps. ``obstacles``
    are those that were not allowed.
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
        """The result: a difference counts if it is more than noise."""
        if self.obstacles or self.typical is None or self.whole is None:
            return "not comparable"
        real = [change.ratio for change in (self.typical, self.whole) if change.is_real]
        if not real:
            return "same"
        if min(real) < 1 < max(real):
            return "mixed"
        return "slower" if real[0] > 1 else "faster"

    @property
    def main_change(self) -> Change | None:
        """The most important figure: that of the median step, or of the mean step if only that one changed."""
        if self.typical is not None and self.whole is not None:
            return self.whole if self.whole.is_real and not self.typical.is_real else self.typical
        return None

    @property
    def sentence(self) -> str:
        """The result in one or two sentences."""
        if self.outcome == "not comparable":
            return "No conclusion: the runs are not comparable."
        if self.main_change is None or self.typical is None or self.whole is None:
            return ""
        if self.outcome == "same":
            noise = units.noise(min(self.typical.noise, self.whole.noise))
            return f"No difference larger than the noise ({noise})."
        if self.outcome == "mixed":
            return (
                f"Mixed: the median step takes {_change(self.typical.ratio)}, the mean step, including the time "
                f"between steps, {_change(self.whole.ratio)}."
            )
        what = (
            "the mean step, including the time between steps," if self.main_change is self.whole else "a step"
        )
        between = f"{_change(self.main_change.low)} to {_change(self.main_change.high)}"
        if self.main_change.high < 1:
            between = f"{units.share(1 - self.main_change.high)} to {units.share(1 - self.main_change.low)}"
        elif self.main_change.high < 2:
            between = f"{units.share(self.main_change.low - 1)} to {units.share(self.main_change.high - 1)}"
        return f"{self.outcome.capitalize()}: {what} takes {_change(self.main_change.ratio)} ({between})."


def compare(before: Side, after: Side, allow: Collection[str] = ()) -> Comparison:
    """Compare two sides, each of one run or of repeated runs; ``allow`` names differences that are intended."""
    old, new = (tuple(document for _, document in side) for side in (before, after))
    first, second = ([_step_blocks(document) for document in side] for side in (old, new))
    intended = set(allow) & set(ALLOWABLE)
    found = find_obstacles(before, after)
    middle, mean = typical(first, second), whole(first, second)
    if middle is None and not any(obstacle.kind == "steps" for obstacle in found):
        few = " and ".join(
            units.counted(document["steps"]["steady"], "steady step") for document in (*old, *new)
        )
        found += (Obstacle("steps", f"The runs are too short, or their lengths differ too much: {few}."),)
    return Comparison(
        before_runs=tuple(name for name, _ in before),
        after_runs=tuple(name for name, _ in after),
        typical=middle,
        whole=mean,
        obstacles=tuple(obstacle for obstacle in found if obstacle.kind not in intended),
        allowed=tuple(obstacle for obstacle in found if obstacle.kind in intended),
        cautions=find_cautions(before, after) + _single(before, after, middle, mean),
        parts=part_changes(old, new, mean),
        findings=finding_changes(old, new),
        conditions=condition_changes(old, new),
    )


def _single(before: Side, after: Side, *changes: Change | None) -> tuple[str, ...]:
    """Return a caution about a difference between two single runs."""
    if len(before) == len(after) == 1 and any(change is not None and change.is_real for change in changes):
        return (
            "One run of each side does not show how much equal runs differ on this machine. Repeat and alternate them: "
            "perfwrap compare a1,a2,a3 b1,b2,b3",
        )
    return ()


def _step_blocks(document: Mapping[str, Any]) -> StepBlocks:
    """Return the step times of a run."""
    blocks = document["steps"]["stretches"]
    return StepBlocks(blocks["steps"], tuple(blocks["mean_ns"]))


def _change(ratio: float) -> str:
    """Return e.g. ``12 % longer`` or ``3.1 % less``."""
    if ratio >= 1:
        return f"{units.share(ratio - 1)} longer" if ratio < 2 else f"{units.times(ratio)} as long"
    return f"{units.share(1 - ratio)} less"
