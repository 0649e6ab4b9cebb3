"""Several runs side by side, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from perfwrap import units
from perfwrap.compare.comparison import Comparison
from perfwrap.compare.differences import ConditionChange, FindingChange, PartChange
from perfwrap.compare.obstacles import Side
from perfwrap.reports.page import Page

MOST_CONDITIONS = 20
"""Differences in settings that are told; `--format json` has all."""

STYLES = {
    "slower": "bold red",
    "faster": "bold green",
    "not comparable": "bold yellow",
    "mixed": "bold yellow",
}


def draw(sides: Sequence[Side], comparisons: Sequence[Comparison], page: Page) -> None:
    """Draw the figures of the sides beside each other, then each later side against the first."""
    _figures(sides, page)
    for comparison in comparisons:
        page.blank()
        if len(comparisons) > 1:
            page.line(
                (page.fitted(f"{comparison.after} against {comparison.before}", page.width), "underline")
            )
        draw_one(comparison, page)


def draw_one(comparison: Comparison, page: Page) -> None:
    """Draw one comparison: the outcome first, then why, then what is different."""
    page.paragraph(comparison.sentence, style=STYLES.get(comparison.outcome, "bold"))
    for obstacle in comparison.obstacles:
        page.paragraph(obstacle.sentence, indent=2, hanging="- ")
    kinds = sorted({obstacle.kind for obstacle in comparison.obstacles})
    if kinds and "steps" not in kinds:
        page.paragraph(
            f"To conclude all the same, where that is meant: --allow {','.join(kinds)}",
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
    """Draw a table of the sides' own figures; names that do not fit are told by letters."""
    letters = [chr(ord("A") + number % 26) for number in range(len(sides))]
    for letter, side in zip(letters, sides, strict=True):
        names = ", ".join(name for name, _ in side)
        command = " ".join(side[0][1]["run"]["command"])
        page.line((f"{letter}  ", "bold"), (page.fitted(f"{names}  {command}".rstrip(), page.width - 3), ""))
    page.blank()
    columns = max(10, min(16, (page.width - 16) // len(sides)))
    page.line(("".ljust(16) + "".join(letter.rjust(columns) for letter in letters), "bold"))
    for label, told in _rows([[document for _, document in side] for side in sides]):
        cells = "".join(page.fitted(cell, columns - 1).rjust(columns) for cell in told)
        page.line((label.ljust(16), ""), (cells, ""))


def _rows(sides: Sequence[Sequence[Mapping[str, Any]]]) -> list[tuple[str, list[str]]]:
    """Return the rows of the table: of several runs the sum of the steps, and the median of what a run has one of."""
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
    """Return the verdict that all runs have, or that they do not agree."""
    return verdicts[0] if len(set(verdicts)) == 1 else "several"


def _middle(steps: Sequence[Mapping[str, Any]], key: str) -> float:
    """Return the median of what is known; 0 where nothing is."""
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
            told = "".join(f"{cell:>10}" for cell in cells) + f"{units.noise(change.noise):>13}"
            page.line((f"{label:<14}{told}", ""), indent=2)


def _parts(parts: Sequence[PartChange], page: Page) -> None:
    """Tell the parts of a step that moved, and that the others did not."""
    real = [part for part in parts if part.is_real]
    if not parts:
        return
    page.blank()
    if not real:
        page.line(("No part of a step moved by more than the noise.", ""), indent=2)
    for part in real:
        cells = (
            units.duration(part.before_ns),
            units.duration(part.after_ns),
            units.signed_duration(part.after_ns - part.before_ns),
        )
        page.line((f"{part.part:<14}" + "".join(f"{cell:>10}" for cell in cells), ""), indent=2)
    if real and len(real) < len(parts):
        page.line(("The other parts of a step moved by less than the noise.", "dim"), indent=2)


def _findings(findings: Sequence[FindingChange], page: Page) -> None:
    """Tell what each rule found in both."""
    if not findings:
        return
    page.blank()
    page.line(("Findings, as shares of the loop", "bold"), indent=2)
    for finding in findings:
        page.paragraph(finding_words(finding), indent=2, hanging="- ")


def finding_words(finding: FindingChange) -> str:
    """Return what a rule found in both runs, in words."""
    # A finding that no time of the loop is claimed for has a share of 0: what is not known is not told as nothing.
    if finding.before is None:
        before = "" if finding.why == "clear" else f" (in the first run {finding.why})"
        return f"{finding.rule}: new{f', {units.share(finding.after)}' if finding.after else ''}{before}"
    if finding.after is None:
        gone = "gone" if finding.why == "clear" else finding.why
        return f"{finding.rule}: {gone}{f', it was {units.share(finding.before)}' if finding.before else ''}"
    if not finding.before and not finding.after:
        return f"{finding.rule}: in both"
    return f"{finding.rule}: {units.share(finding.before)} before, {units.share(finding.after)} now"


def _conditions(conditions: Sequence[ConditionChange], page: Page) -> None:
    """Tell the settings that differ."""
    if not conditions:
        return
    page.blank()
    page.line(("What else is different", "bold"), indent=2)
    for change in conditions[:MOST_CONDITIONS]:
        page.paragraph(condition_words(change), indent=2, hanging="- ")
    left = len(conditions) - MOST_CONDITIONS
    if left > 0:
        page.line((f"and {units.count(left)} more; --format json has them", "dim"), indent=2)


def condition_words(change: ConditionChange) -> str:
    """Return a condition that differs, in words."""
    absent = "not set" if change.key.startswith("env/") else "not recorded"
    before, after = (absent if value is None else value for value in (change.before, change.after))
    return f"{change.key}: {before} → {after}"
