"""Text that Markdown leaves as it is."""

from __future__ import annotations

import re
from collections.abc import Iterable

from perfwrap.shown_text import visible

SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~]|&(?=[#\w]))")
"""Signs that would begin formatting, a link, a table's cell, HTML or what stands for another sign."""
CALLS = re.compile(r"(@|\\#)(?=\w)")
"""Begins what calls somebody (``@name``) or refers to something (``#12``): that a name of a function must not do."""
NOTHING = "&#8203;"
"""A blank without any width."""


def escaped(text: str) -> str:
    """Return the text so that it reads as it is, on one line."""
    return CALLS.sub(rf"\1{NOTHING}", SPECIAL.sub(r"\\\1", visible(text)))


def code(text: str) -> str:
    """Return the text as code on one line, whatever backticks it has."""
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
