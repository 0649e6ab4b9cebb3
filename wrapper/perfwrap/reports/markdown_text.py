"""Escapes text for Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable

from perfwrap.shown_text import visible

SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~]|&(?=[#\w]))")
"""Characters that would begin formatting, a link, a table cell, HTML or an entity."""
CALLS = re.compile(r"(@|\\#)(?=\w)")
"""Characters that begin a mention (``@name``) or a reference (``#12``), which a function name must not create."""
NOTHING = "&#8203;"
"""A space of zero width."""


def escaped(text: str) -> str:
    """Return the escaped text on one line."""
    return CALLS.sub(rf"\1{NOTHING}", SPECIAL.sub(r"\\\1", visible(text)))


def code(text: str) -> str:
    """Return the text as code on one line, with any backticks in it."""
    shown = visible(text)
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") or not shown else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Return the lines of a table; the first column is text, the others are figures."""
    heads = list(headings)
    rule = ["---", *("---:" for _ in heads[1:])]
    return [_row(heads), _row(rule), *(_row(row) for row in rows)]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
