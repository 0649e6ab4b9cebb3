"""Explain a rule: what it finds, why that costs, how to fix it, and when it is wrong."""

from __future__ import annotations

import difflib
import sys
from typing import Annotated

import typer

from perfwrap.errors import PerfwrapError


def explain(
    rule: Annotated[str, typer.Argument(help="A rule's id, as reports name it.", show_default=False)] = "",
) -> None:
    """Explain a rule: what it finds, why that costs, how to fix it, and when it is wrong.

    Without a RULE, list all of them.
    """
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.reports import explanation
    from perfwrap.reports.page import Page
    from perfwrap.rules import RULES
    from perfwrap.rules.model import rule_id

    page = Page(sys.stdout)
    rules = {rule_id(module): module for module in RULES}
    if not rule:
        explanation.draw_list(rules, page)
    elif rule in rules:
        explanation.draw(rule, rules[rule], page)
    else:
        raise PerfwrapError(f"There is no rule {rule!r}.", _suggestion(rule, list(rules)))
    page.show()


def _suggestion(wrong: str, rules: list[str]) -> str:
    """Return the ids that are spelled alike, or contain the word, or the way to all of them."""
    word = wrong.lower().replace("-", "_")
    close = difflib.get_close_matches(word, rules, n=3) or [rule for rule in rules if word and word in rule]
    return f"Did you mean {' or '.join(close)}?" if close else "`perfwrap explain` lists all rules."
