"""A diagnosis as Markdown, short enough for a pull request."""

from __future__ import annotations

import shlex
from pathlib import Path, PurePath

from perfwrap import units
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.reports.gain import alternative, expected
from perfwrap.reports.markdown_text import code, escaped, table
from perfwrap.rules.model import Finding, Outcome
from perfwrap.timeline.notebook_cells import at_line

WHOLE = 1000
"""Shares are rounded to tenths of a per cent, which sum to 100.0 %."""


def text(diagnosis: Diagnosis, folder: Path) -> str:
    """Return the whole report."""
    command = shlex.join(str(word) for word in diagnosis.run.get("command") or ())
    lines = [f"### perfwrap: {code(command)}" if command else "### perfwrap", ""]
    lines += [f"**{escaped(diagnosis.verdict.sentence)}**", "", *_account(diagnosis)]
    for number, finding in enumerate(diagnosis.findings, start=1):
        lines += ["", *_finding(number, finding, str(diagnosis.run.get("cwd") or ""))]
    if diagnosis.would_not_help:
        unhelpful = [f"- {escaped(each.sentence)}" for each in diagnosis.would_not_help]
        lines += ["", "Would not help:", "", *unhelpful]
    lines += ["", *_unchecked(diagnosis.outcomes)]
    lines += [f"- Warning: {escaped(warning)}" for warning in diagnosis.warnings]
    lines += ["", f"Run folder: {code(str(folder))}"]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _account(diagnosis: Diagnosis) -> list[str]:
    """Return where the time of a step goes."""
    if not diagnosis.account:
        return []
    steps = diagnosis.steps
    tenths = units.apportion({part: float(value) for part, value in diagnosis.account.items()}, WHOLE)
    rows = [
        (part, f"{value / 10:.1f} %")
        for part, value in sorted(tenths.items(), key=lambda item: -item[1])
        if value
    ]
    rate = f", {units.rate(steps.samples_per_s, 'samples')}" if steps.samples_per_s else ""
    times = f"median {units.duration(steps.median_ns, 3)}, p99 {units.duration(steps.p99_ns, 3)}{rate}"
    return [
        f"{units.counted(steps.steady, 'steady step')}, {times}.",
        "",
        *table(("part", "of a step"), rows),
    ]


def _finding(number: int, finding: Finding, directory: str) -> list[str]:
    """Return one finding: the sentence, the line, the fix, and the collapsed evidence."""
    share = f", {units.share(finding.share)}" if finding.share > 0 else ""
    lines = [f"**{number}. {code(finding.rule)}** ({finding.severity}{share})", "", escaped(finding.sentence)]
    if finding.location is not None:
        path = PurePath(finding.location.file)
        shown = path.relative_to(directory) if directory and path.is_relative_to(directory) else path
        lines += ["", f"At {code(at_line(str(shown), finding.location.line))}."]
    lines += ["", f"Fix: {escaped(finding.advice)}"]
    if expected(finding):
        lines += ["", f"Gain: {expected(finding)}."]
    if finding.options[1:]:
        lines += ["", "Or:", "", *(f"- {escaped(alternative(option))}" for option in finding.options[1:])]
    if finding.evidence:
        inner = [f"- {escaped(sentence)}" for sentence in finding.evidence]
        lines += ["", "<details><summary>Evidence</summary>", "", *inner, "", "</details>"]
    return lines


def _unchecked(outcomes: tuple[Outcome, ...]) -> list[str]:
    """Return what could not be checked, and why."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for outcome in outcomes:
        if outcome.state in ("not checked", "failed"):
            reasons.setdefault((outcome.state, outcome.why), []).append(outcome.rule)
    return [
        f"- {state.capitalize()}: {', '.join(code(rule) for rule in rules)}: {escaped(why)}"
        for (state, why), rules in reasons.items()
    ]
