"""A comparison as Markdown, short enough for a pull request."""

from __future__ import annotations

from perfwrap import units
from perfwrap.comparison.comparing import Comparison
from perfwrap.comparison.judgement import Judgement
from perfwrap.reports.markdown_text import code, escaped, table
from perfwrap.reports.terminal.comparison import condition_words, finding_words

MAX_CONDITIONS = 20
SIGNS = {"ok": "✅", "regression": "❌", "not comparable": "⚠️", "too noisy": "⚠️"}


def text(comparison: Comparison, judgement: Judgement | None = None) -> str:
    """Return the whole comparison; a judgement comes first."""
    names = f"{code(comparison.after)} compared with {code(comparison.before)}"
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
        ("Other differences", _conditions(comparison)),
    ):
        if items:
            inner = [f"- {escaped(item)}" for item in items]
            lines += ["", f"<details><summary>{title}</summary>", "", *inner, "", "</details>"]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _figures(comparison: Comparison) -> list[str]:
    """Return the step times and the parts of a step that changed, as a table."""
    rows = []
    for label, change in (("typical step", comparison.typical), ("mean step", comparison.whole)):
        if change is not None:
            times = (units.duration(change.before_ns, 3), units.duration(change.after_ns, 3))
            rows.append((label, *times, units.signed_share(change.ratio - 1), units.noise(change.noise)))
    for part in comparison.parts:
        if part.is_real:
            times = (units.duration(part.before_ns), units.duration(part.after_ns))
            rows.append(
                (f"of which {part.part}", *times, units.signed_duration(part.after_ns - part.before_ns), "")
            )
    return table(("", "before", "after", "change", "noise"), rows) if rows else []


def _conditions(comparison: Comparison) -> list[str]:
    """Return the first differences in settings."""
    shown = [condition_words(change) for change in comparison.conditions[:MAX_CONDITIONS]]
    left = len(comparison.conditions) - len(shown)
    return [*shown, f"and {units.count(left)} more"] if left else shown
