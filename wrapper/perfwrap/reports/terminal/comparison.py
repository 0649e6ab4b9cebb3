"""A comparison of runs, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from perfwrap import units
from perfwrap.comparison.comparing import Comparison
from perfwrap.comparison.differences import ConditionChange, FindingChange, PartChange
from perfwrap.comparison.obstacles import Side
from perfwrap.reports.terminal.page import Page

MAX_CONDITIONS = 20
"""Differences in settings that are shown; `--format json` has all."""

STYLES = {
    "slower": "bold red",
    "faster": "bold green",
    "not comparable": "bold yellow",
    "mixed": "bold yellow",
}


def draw(sides: Sequence[Side], comparisons: Sequence[Comparison], page: Page) -> None:
    """Draw the figures of all sides, then the comparison of each later side with the first."""
    _figures(sides, page)
    for comparison in comparisons:
        page.blank()
        if len(comparisons) > 1:
            page.line(
                (
                    page.fitted(f"{comparison.after} compared with {comparison.before}", page.width),
                    "underline",
                )
            )
        draw_one(comparison, page)


def draw_one(comparison: Comparison, page: Page) -> None:
    """Draw one comparison: the result first, then the reasons, then the differences."""
    page.paragraph(comparison.sentence, style=STYLES.get(comparison.outcome, "bold"))
    for obstacle in comparison.obstacles:
        page.paragraph(obstacle.sentence, indent=2, hanging="- ")
    kinds = sorted({obstacle.kind for obstacle in comparison.obstacles})
    if kinds and "steps" not in kinds:
        page.paragraph(
            f"If these differences are intended, add: --allow {','.join(kinds)}",
            indent=2,
            hanging="  ",
        )
    for obstacle in comparison.allowed:
        page.paragraph(obstacle.sentence, indent=2, hanging="Allowed: ")
    for caution in comparison.cautions:
        page.paragraph(caution, indent=2, hanging="Note: ")
    _changes(comparison, page)
    _parts(comparison.parts, page)
    _findings(comparison.findings, page)
    _conditions(comparison.conditions, page)


def _figures(sides: Sequence[Side], page: Page) -> None:
    """Draw a table of the figures of each side, with letters for their names."""
    letters = [chr(ord("A") + number % 26) for number in range(len(sides))]
    for letter, side in zip(letters, sides, strict=True):
        names = ", ".join(name for name, _ in side)
        command = " ".join(side[0][1]["run"]["command"])
        page.line((f"{letter}  ", "bold"), (page.fitted(f"{names}  {command}".rstrip(), page.width - 3), ""))
    page.blank()
    columns = max(10, min(16, (page.width - 16) // len(sides)))
    page.line(("".ljust(16) + "".join(letter.rjust(columns) for letter in letters), "bold"))
    for label, texts in _rows([[document for _, document in side] for side in sides]):
        cells = "".join(page.fitted(cell, columns - 1).rjust(columns) for cell in texts)
        page.line((label.ljust(16), ""), (cells, ""))


def _rows(sides: Sequence[Sequence[Mapping[str, Any]]]) -> list[tuple[str, list[str]]]:
    """Return the rows of the table; for repeated runs, the sum of the steps and the median of the other figures."""
    steps = [[document["steps"] for document in side] for side in sides]
    rows = [
        ("verdict", [_common([document["verdict"]["id"] for document in side]) for side in sides]),
        ("steady steps", [units.count(sum(of["steady"] for of in side)) for side in steps]),
        ("median step", [units.duration(_middle(side, "median_ns"), 3) for side in steps]),
        ("p99", [units.duration(_middle(side, "p99_ns"), 3) for side in steps]),
        ("samples/s", [units.number(_middle(side, "samples_per_s") or float("nan"), 3) for side in steps]),
    ]
    many = ("runs", [units.count(len(side)) for side in sides])
    return [many, *rows] if max(map(len, sides)) > 1 else rows


def _common(verdicts: Sequence[str]) -> str:
    """Return the verdict of all runs, or `several`."""
    return verdicts[0] if len(set(verdicts)) == 1 else "several"


def _middle(steps: Sequence[Mapping[str, Any]], key: str) -> float:
    """Return the median of the known values; 0 if there is none."""
    return float(median([of[key] for of in steps if of[key] is not None] or [0.0]))


def _changes(comparison: Comparison, page: Page) -> None:
    """Draw both step times with their noise."""
    rows = (("typical step", comparison.typical), ("mean step", comparison.whole))
    if all(change is None for _, change in rows):
        return
    page.blank()
    page.line((f"{'':<14}{'before':>10}{'after':>10}{'change':>10}{'noise':>13}", "bold"), indent=2)
    for label, change in rows:
        if change is not None:
            cells = (
                units.duration(change.before_ns, 3),
                units.duration(change.after_ns, 3),
                units.signed_share(change.ratio - 1),
            )
            row = "".join(f"{cell:>10}" for cell in cells) + f"{units.noise(change.noise):>13}"
            page.line((f"{label:<14}{row}", ""), indent=2)


def _parts(parts: Sequence[PartChange], page: Page) -> None:
    """Draw the parts of a step that changed by more than the noise."""
    real = [part for part in parts if part.is_real]
    if not parts:
        return
    page.blank()
    if not real:
        page.line(("No part of a step changed by more than the noise.", ""), indent=2)
    for part in real:
        cells = (
            units.duration(part.before_ns),
            units.duration(part.after_ns),
            units.signed_duration(part.after_ns - part.before_ns),
        )
        page.line((f"{part.part:<14}" + "".join(f"{cell:>10}" for cell in cells), ""), indent=2)
    if real and len(real) < len(parts):
        page.line(("The other parts of a step changed by less than the noise.", "dim"), indent=2)


def _findings(findings: Sequence[FindingChange], page: Page) -> None:
    """Draw what each rule found in both sides."""
    if not findings:
        return
    page.blank()
    page.line(("Findings, as shares of the loop", "bold"), indent=2)
    for finding in findings:
        page.paragraph(finding_words(finding), indent=2, hanging="- ")


def finding_words(finding: FindingChange) -> str:
    """Return what a rule found in both runs, in words."""
    # A finding without a time has a share of 0, which is not shown: it would look like a measured 0 %.
    if finding.before is None:
        before = "" if finding.why == "clear" else f" (in the first run {finding.why})"
        return f"{finding.rule}: new{f', {units.share(finding.after)}' if finding.after else ''}{before}"
    if finding.after is None:
        gone = "gone" if finding.why == "clear" else finding.why
        return f"{finding.rule}: {gone}{f', was {units.share(finding.before)}' if finding.before else ''}"
    if not finding.before and not finding.after:
        return f"{finding.rule}: in both"
    return f"{finding.rule}: {units.share(finding.before)} before, {units.share(finding.after)} now"


def _conditions(conditions: Sequence[ConditionChange], page: Page) -> None:
    """Draw the settings that differ."""
    if not conditions:
        return
    page.blank()
    page.line(("Other differences", "bold"), indent=2)
    for change in conditions[:MAX_CONDITIONS]:
        page.paragraph(condition_words(change), indent=2, hanging="- ")
    left = len(conditions) - MAX_CONDITIONS
    if left > 0:
        page.line((f"and {units.count(left)} more (--format json lists all)", "dim"), indent=2)


def condition_words(change: ConditionChange) -> str:
    """Return a condition that differs, in words."""
    absent = "not set" if change.key.startswith("env/") else "not recorded"
    before, after = (absent if value is None else value for value in (change.before, change.after))
    return f"{change.key}: {before} → {after}"
