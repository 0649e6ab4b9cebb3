"""Which rules found nothing, which could not be checked and why, and which failed; for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from perfwrap import units
from perfwrap.reports.terminal.page import Page
from perfwrap.rules.model import Outcome, State

MAX_REASONS = 2
"""Lines with reasons; with the heading, what was not checked takes three lines at most."""


def draw_checked(outcomes: Sequence[Outcome], page: Page, every: bool = False) -> None:
    """Draw how many rules were checked, and why others were not; ``every``: with the names of all rules."""
    checked = [outcome for outcome in outcomes if outcome.state in ("found", "clear")]
    found = sum(outcome.state == "found" for outcome in checked)
    if checked:
        page.paragraph(f"{units.counted(len(checked), 'rule')}, {found} with findings.", hanging="Checked: ")
    if every:
        _draw_names(outcomes, page)
    else:
        _draw_reasons(outcomes, page)
    for why, rules in _by_reason(outcomes, "failed").items():
        page.paragraph(f"{', '.join(rules)}: {why}", hanging="Failed (a bug in perfwrap): ")


def _draw_names(outcomes: Sequence[Outcome], page: Page) -> None:
    """Draw the names of all rules that found nothing or were not checked."""
    clear = [outcome.rule for outcome in outcomes if outcome.state == "clear"]
    if clear:
        page.paragraph(", ".join(clear), hanging="No problem: ")
    for why, rules in _by_reason(outcomes, "not checked").items():
        page.paragraph(f"{', '.join(rules)}: {why}", hanging="Not checked: ")


def _draw_reasons(outcomes: Sequence[Outcome], page: Page) -> None:
    """Draw how many rules were not checked, and the most frequent reasons, a line each."""
    reasons = sorted(_by_reason(outcomes, "not checked").items(), key=lambda item: -len(item[1]))
    if not reasons:
        return
    total = sum(len(rules) for _, rules in reasons)
    heading = f"{units.counted(total, 'rule')} (to list them: perfwrap report --all)"
    page.line(("Not checked: ", "bold"), (heading, ""))
    shown = reasons if len(reasons) <= MAX_REASONS else reasons[: MAX_REASONS - 1]
    rest = total - sum(len(rules) for _, rules in shown)
    lines = [(len(rules), why) for why, rules in shown] + ([(rest, "other reasons")] if rest else [])
    digits = len(str(lines[0][0]))
    for count, why in lines:
        page.line((page.clipped(f"{count:>{digits}}  {why}", page.width - 2), ""), indent=2)


def _by_reason(outcomes: Sequence[Outcome], state: State) -> dict[str, list[str]]:
    """Return the rules with that outcome, by the reason."""
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.state == state:
            found.setdefault(outcome.why, []).append(outcome.rule)
    return found
