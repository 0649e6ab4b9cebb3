"""A comparison as Markdown, short enough for a pull request."""

from __future__ import annotations

from perfwrap import units
from perfwrap.compare.comparison import Comparison
from perfwrap.compare.judgement import Judgement
from perfwrap.reports.comparison import condition_words, finding_words
from perfwrap.reports.markdown_text import code, escaped, table

MOST_CONDITIONS = 20
SIGNS = {"ok": "✅", "regression": "❌", "not comparable": "⚠️", "too noisy": "⚠️"}


def text(comparison: Comparison, judgement: Judgement | None = None) -> str:
    """Return the whole comparison; with a judgement that comes first."""
    names = f"{code(comparison.after)} against {code(comparison.before)}"
    lines = [f"### perfwrap: {names}", ""]
    if judgement is not None:
        lines += [f"{SIGNS[judgement.state]} **{judgement.state}**: {escaped(judgement.sentence)}", ""]
    else:
        lines += [f"**{escaped(comparison.sentence)}**", ""]
    lines += [f"- {escaped(obstacle.sentence)}" for obstacle in comparison.obstacles if judgement is None]
    lines += [f"- Allowed: {escaped(obstacle.sentence)}" for obstacle in comparison.allowed]
    lines += [f"- Note: {escaped(caution)}" for caution in comparison.cautions]
    lines += ["", *_figures(comparison)]
    for title, items in (
        ("Findings, as shares of the loop", [finding_words(finding) for finding in comparison.findings]),
        ("What else is different", _conditions(comparison)),
    ):
        if items:
            inner = [f"- {escaped(item)}" for item in items]
            lines += ["", f"<details><summary>{title}</summary>", "", *inner, "", "</details>"]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _figures(comparison: Comparison) -> list[str]:
    """Return the step times and the parts of a step that moved, as a table."""
    rows = []
    for label, change in (("typical step", comparison.typical), ("mean step", comparison.whole)):
        if change is not None:
            times = (units.duration(change.before_ns, 3), units.duration(change.after_ns, 3))
            rows.append((label, *times, units.signed_share(change.ratio - 1), units.noise(change.noise)))
    for part in comparison.parts:
        if part.is_real:
            times = (units.duration(part.before_ns), units.duration(part.after_ns))
            rows.append(
                (f"of it {part.part}", *times, units.signed_duration(part.after_ns - part.before_ns), "")
            )
    return table(("", "before", "after", "change", "noise"), rows) if rows else []


def _conditions(comparison: Comparison) -> list[str]:
    """Return the first differences in settings."""
    told = [condition_words(change) for change in comparison.conditions[:MOST_CONDITIONS]]
    left = len(comparison.conditions) - len(told)
    return [*told, f"and {units.count(left)} more"] if left else told
