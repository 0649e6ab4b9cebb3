"""Explain a rule, or list all rules."""

from __future__ import annotations

import difflib
import sys
from typing import Annotated

import typer

from perfwrap.errors import PerfwrapError
from perfwrap.reports.terminal import explanation
from perfwrap.reports.terminal.page import Page
from perfwrap.rules import RULES
from perfwrap.rules.model import rule_id


def explain(
    rule: Annotated[
        str, typer.Argument(help="The name of a rule, as in the report.", show_default=False)
    ] = "",
) -> None:
    """Explain a rule, or list all rules.

    For a RULE: what it finds, why that costs time, how the saving is estimated, how to fix it, when it is wrong.
    """
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
    """Return the rules with a similar name or with the word in their name; without any, how to list all."""
    word = wrong.lower().replace("-", "_")
    close = difflib.get_close_matches(word, rules, n=3) or [rule for rule in rules if word and word in rule]
    return f"Did you mean {' or '.join(close)}?" if close else "List all rules: perfwrap explain"
