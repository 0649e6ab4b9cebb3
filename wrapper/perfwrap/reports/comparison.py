"""Several runs side by side, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfwrap import units
from perfwrap.compare.comparison import Comparison
from perfwrap.compare.differences import ConditionChange, FindingChange, PartChange
from perfwrap.reports.page import Page

MOST_CONDITIONS = 20
"""Differences in settings that are told; `--format json` has all."""

STYLES = {
    "slower": "bold red",
    "faster": "bold green",
    "not comparable": "bold yellow",
    "mixed": "bold yellow",
}

Runs = Sequence[tuple[str, Mapping[str, Any]]]


def draw(runs: Runs, comparisons: Sequence[Comparison], page: Page) -> None:
    """Draw the runs' figures side by side, then each later run against the first."""
    _figures(runs, page)
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


def _figures(runs: Runs, page: Page) -> None:
    """Draw a table of the runs' own figures; names that do not fit are told by letters."""
    letters = [chr(ord("A") + number % 26) for number in range(len(runs))]
    for letter, (name, document) in zip(letters, runs, strict=True):
        command = " ".join(document["run"]["command"])
        page.line((f"{letter}  ", "bold"), (page.fitted(f"{name}  {command}".rstrip(), page.width - 3), ""))
    page.blank()
    columns = max(10, min(16, (page.width - 16) // len(runs)))
    page.line(("".ljust(16) + "".join(letter.rjust(columns) for letter in letters), "bold"))
    for label, told in _rows(runs):
        cells = "".join(page.fitted(cell, columns - 1).rjust(columns) for cell in told)
        page.line((label.ljust(16), ""), (cells, ""))


def _rows(runs: Runs) -> list[tuple[str, list[str]]]:
    """Return the rows of the table."""
    documents = [document for _, document in runs]
    steps = [document["steps"] for document in documents]
    return [
        ("verdict", [document["verdict"]["id"] for document in documents]),
        ("steady steps", [units.count(of["steady"]) for of in steps]),
        ("median step", [units.duration(of["median_ns"], 3) for of in steps]),
        ("p99", [units.duration(of["p99_ns"], 3) for of in steps]),
        ("samples/s", [units.number(of["samples_per_s"] or float("nan"), 3) for of in steps]),
    ]


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
    if finding.before is None:
        before = "" if finding.why == "clear" else f" (in the first run {finding.why})"
        return f"{finding.rule}: new, {units.share(finding.after)}{before}"
    if finding.after is None:
        gone = "gone" if finding.why == "clear" else finding.why
        return f"{finding.rule}: {gone}, it was {units.share(finding.before)}"
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
