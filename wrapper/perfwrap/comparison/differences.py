"""Differences in the breakdown of the step time, in findings and in conditions, item by item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from perfwrap.comparison.noise import Change

Documents: TypeAlias = Sequence[Mapping[str, Any]]
"""The diagnosis.json of each run of a side."""


@dataclass(frozen=True)
class PartChange:
    """The time of one part per step; ``is_real`` if it changed by more than the noise of the mean step."""

    part: str
    before_ns: float
    after_ns: float
    is_real: bool


@dataclass(frozen=True)
class FindingChange:
    """The share of the loop that a rule found in both runs; None if it found nothing, with the reason."""

    rule: str
    before: float | None
    after: float | None
    why: str = ""
    """The outcome of the rule in the run in which it found nothing."""


@dataclass(frozen=True)
class ConditionChange:
    """One condition that differs; None if it was not recorded or not set."""

    key: str
    before: str | None
    after: str | None


def part_changes(before: Documents, after: Documents, whole: Change | None) -> tuple[PartChange, ...]:
    """Return the time of each part per step, the largest changes first; nothing without a mean step."""
    old, new = (_means([document["account"] for document in side]) for side in (before, after))
    if whole is None or not old or not new:
        return ()
    noise = whole.noise * max(whole.before_ns, whole.after_ns)
    found = []
    for part in dict.fromkeys((*old, *new)):
        was, is_ = old.get(part, 0.0) * whole.before_ns, new.get(part, 0.0) * whole.after_ns
        if was or is_:
            found.append(PartChange(part, was, is_, abs(is_ - was) > noise))
    return tuple(sorted(found, key=lambda change: -abs(change.after_ns - change.before_ns)))


def finding_changes(before: Documents, after: Documents) -> tuple[FindingChange, ...]:
    """Return each rule that found something in either side, the largest share first."""
    old, new = (_means([_shares(document) for document in side]) for side in (before, after))
    found = []
    for rule in dict.fromkeys((*old, *new)):
        silent = after if rule not in new else before if rule not in old else None
        outcome = {} if silent is None else silent[0]["outcomes"].get(rule, {})
        why = "" if silent is None else outcome.get("state", "unknown")
        found.append(FindingChange(rule, old.get(rule), new.get(rule), why))
    return tuple(sorted(found, key=lambda change: -max(change.before or 0.0, change.after or 0.0)))


def condition_changes(before: Documents, after: Documents) -> tuple[ConditionChange, ...]:
    """Return the settings, versions, variables and the command if they differ, by name."""
    old, new = (_combined([_conditions(document) for document in side]) for side in (before, after))
    keys = sorted(set(old) | set(new))
    return tuple(
        ConditionChange(key, old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)
    )


def _means(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each value over the runs; a missing value counts as 0."""
    keys = dict.fromkeys(key for run in runs for key in run)
    return {key: sum(run.get(key, 0.0) for run in runs) / len(runs) for key in keys}


def _combined(runs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the conditions of the runs of a side; different values are joined by `or`."""
    keys = dict.fromkeys(key for run in runs for key in run)
    return {key: " or ".join(dict.fromkeys(run[key] for run in runs if key in run)) for key in keys}


def _shares(document: Mapping[str, Any]) -> dict[str, float]:
    """Return the share of the loop of each rule, summed over its findings."""
    found: dict[str, float] = {}
    for finding in document["findings"]:
        found[finding["rule"]] = found.get(finding["rule"], 0.0) + finding["share"]
    return found


def _conditions(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the conditions, including the command."""
    words = document.get("run", {}).get("command") or ()
    return {**document["conditions"], **({"command": " ".join(map(str, words))} if words else {})}
