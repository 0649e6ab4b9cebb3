"""Score a diagnosis against the expected answer of the list and what py-spy saw. Nothing here is a matter of taste.

``right``: the verdict is an expected one, and the first finding has an expected rule, at an expected line.
``partly``: the verdict is expected or says something true that is less important, or an expected rule was found.
``abstained``: no verdict, although one was expected, and no expected finding.
``misleading``: something false is claimed (``falsehoods``), or none of the above.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from truth import Truth

RIGHT, PARTLY, MISLEADING, ABSTAINED = "right", "partly", "misleading", "abstained"
SCORES = (RIGHT, PARTLY, MISLEADING, ABSTAINED)
NO_VERDICT = "unknown"
NONE = "none"
"""In a list of expected rules: no finding of LARGE share is right too."""
LARGE = 0.10
"""From this share, a finding or a part of the account claims that its part of the program matters."""
SMALL = 0.05
"""Below this share, a part does not matter."""
ACCOUNT_LARGE, ACCOUNT_RATIO = 0.20, 3.0
"""A part of the account is false if it has this share, and so many times that of the truth."""

EXAGGERATED = 2.0
"""A finding of ACCOUNT_LARGE share is false if it claims more than so many times the truth."""

ASIDE = ("profiler_cost", "phase_balance", "first_epoch_slower")
"""Findings that are no answer to what holds the program back, if another finding follows."""
HOT = ("compute_bound", "python_overhead", "slow_optimizer")
"""Rules whose line must be one of those on which py-spy saw the program."""
DATA = (
    "data_loader_single_process",
    "data_loader_wait",
    "first_batch_latency",
    "gpu_waits_for_data",
    "item_time_spread",
    "items_never_change",
    "needless_workers",
    "shallow_prefetch",
    "shared_memory_limit",
    "slow_collate",
    "slow_item",
    "storage_bound_input",
    "too_few_workers",
    "too_many_workers",
    "worker_imbalance",
    "worker_lock_contention",
    "worker_restart",
)
PARTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(DATA, ("data",)),
    "checkpoint_stall": ("saving",),
    "validation_share": ("validation",),
    "evaluation_with_grad": ("validation",),
    "logging_overhead": ("logging",),
    "recompilation": ("compile",),
    "slow_optimizer": ("optimizer",),
    "zero_grad_memset": ("optimizer",),
    "slow_start": ("imports", "preparation", "compile"),
    "python_overhead": ("other", "environment", "logging", "forward"),
    "compute_bound": ("forward", "backward", "optimizer"),
}
"""The phases that a finding of a rule is about."""
ACCOUNT = {
    "data": ("data",),
    "forward": ("forward", "validation"),
    "backward": ("backward",),
    "optimizer": ("optimizer",),
    "validation": ("validation",),
    "checkpoint": ("saving",),
    "compile": ("compile",),
}
"""The phases that a part of the account is about."""


@dataclass(frozen=True)
class Expected:
    """The expected answer, written from py-spy's recording and the program's text."""

    verdicts: tuple[str, ...]
    rules: tuple[str, ...]
    """The rules that the first finding may have."""
    lines: tuple[str, ...] = ()
    """The lines that the first finding may name, "file:line" or "file:first-last"; none if any."""
    partly: tuple[str, ...] = ()
    """Verdicts that are true but not the most important."""
    misleading: tuple[str, ...] = ()
    """Verdicts and rules that would be false, besides what ``falsehoods`` finds."""
    why: str = ""


@dataclass(frozen=True)
class Score:
    """The score of one program, and the reasons if it is not right."""

    score: str
    reasons: tuple[str, ...] = field(default=())


def score(diagnosis: Mapping[str, Any], expected: Expected, truth: Truth) -> Score:
    """Return the score of a diagnosis."""
    verdict = diagnosis["verdict"]["id"]
    findings = diagnosis["findings"]
    false = falsehoods(diagnosis, expected, truth)
    if false:
        return Score(MISLEADING, tuple(false))
    verdict_is_right = verdict in expected.verdicts
    reasons = [] if verdict_is_right else [f"verdict {verdict}"]
    reasons += _lead(findings, expected, truth)
    if not reasons:
        return Score(RIGHT)
    some = any(finding["rule"] in expected.rules for finding in findings)
    if verdict == NO_VERDICT and not verdict_is_right and not some:
        return Score(ABSTAINED, tuple(reasons))
    if verdict_is_right or verdict in expected.partly or some:
        return Score(PARTLY, tuple(reasons))
    return Score(MISLEADING, tuple(reasons))


def falsehoods(diagnosis: Mapping[str, Any], expected: Expected, truth: Truth) -> list[str]:
    """Return what the diagnosis claims although it is false."""
    verdict = diagnosis["verdict"]["id"]
    said = [f"verdict {verdict} is false"] if verdict in expected.misleading else []
    for finding in diagnosis["findings"]:
        rule, share = finding["rule"], finding["share"]
        if rule in expected.misleading:
            said.append(f"{rule} is false")
        phases = PARTS.get(rule, ())
        real = _most(truth, phases, rule)
        if phases and (
            (share >= LARGE and real < SMALL) or (share >= ACCOUNT_LARGE and share > EXAGGERATED * real)
        ):
            said.append(f"{rule} claims {share:.0%}, which takes {real:.0%}")
    for part, phases in ACCOUNT.items():
        share = diagnosis["account"].get(part, 0.0)
        real = _compiled(truth, phases)
        if share >= ACCOUNT_LARGE and share > ACCOUNT_RATIO * real:
            said.append(f"account: {part} {share:.0%}, really {real:.0%} of the loop")
    return said


def _most(truth: Truth, phases: Sequence[str], rule: str) -> float:
    """Return the share of phases of the whole run or, where that is more, of the loop."""
    whole = sum(truth.phases.get(phase, 0.0) for phase in phases)
    return whole if rule == "slow_start" else max(whole, _compiled(truth, phases))


def _compiled(truth: Truth, phases: Sequence[str]) -> float:
    """Return the share of phases of the loop without compilation, which perfwrap counts as warm-up."""
    left = 1.0 if "compile" in phases else 1 - truth.loop("compile")
    return sum(truth.loop(phase) for phase in phases) / left if left else 0.0


def _lead(findings: Sequence[Mapping[str, Any]], expected: Expected, truth: Truth) -> list[str]:
    """Return what is not right with the first finding."""
    leading = [
        finding for finding in findings if finding["rule"] not in ASIDE or finding["rule"] in expected.rules
    ]
    if not leading or (NONE in expected.rules and leading[0]["share"] < LARGE):
        return [] if NONE in expected.rules else ["no finding"]
    first = leading[0]
    place = first["location"]
    where = f"{place['file']}:{place['line']}" if place else "no line"
    if first["rule"] not in expected.rules:
        return [f"first finding {first['rule']} ({where.rpartition('/')[2]})"]
    if expected.lines and not (place and any(_within(line, place) for line in expected.lines)):
        return [f"{first['rule']} names {where.rpartition('/')[2]}"]
    if first["rule"] in HOT and place and not any(_holds(place, line) for line in truth.lines):
        return [f"{first['rule']} names {where.rpartition('/')[2]}, where py-spy hardly saw the program"]
    return []


def _holds(place: Mapping[str, Any], line: str) -> bool:
    """Return whether a place, one line or several, holds a line of the truth."""
    file, _, number = line.rpartition(":")
    first, last = place["line"], place.get("until_line") or place["line"]
    inside = first <= int(number) <= last if first <= last else not last < int(number) < first
    return inside and f"/{place['file']}".endswith(f"/{file}")


def _within(expected: str, place: Mapping[str, Any]) -> bool:
    match = re.fullmatch(r"(.+):(\d+)(?:-(\d+))?", expected)
    if match is None:
        raise ValueError(f"{expected!r} is no line")
    file, first, last = match[1], int(match[2]), int(match[3] or match[2])
    return f"/{place['file']}".endswith(f"/{file}") and first <= place["line"] <= last
