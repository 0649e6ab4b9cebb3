"""The documentation of a rule, for the terminal and for the generated tables."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from perfwrap.reports.terminal.page import Page
from perfwrap.rules.model import Rule
from perfwrap.rules.thresholds import thresholds_of

HEADINGS = (
    "What it finds",
    "Why it costs",
    "How the gain is estimated",
    "How to fix",
    "When it is wrong",
)
"""The headings of every rule's docstring, in order."""


def summary(rule: Rule) -> str:
    """Return the first sentence of a rule's docstring."""
    return (rule.__doc__ or "").strip().partition("\n")[0]


def sections(rule: Rule) -> dict[str, list[str]]:
    """Return the paragraphs under each heading of a rule's docstring."""
    found: dict[str, list[str]] = {}
    paragraphs: list[str] = []
    for line in inspect.cleandoc(rule.__doc__ or "").splitlines():
        if line in HEADINGS:
            paragraphs = found.setdefault(line, [])
            paragraphs.append("")
        elif not line.strip() and paragraphs:
            paragraphs.append("")
        elif paragraphs:
            paragraphs[-1] = f"{paragraphs[-1]} {line.strip()}".strip()
    return {heading: [text for text in texts if text] for heading, texts in found.items()}


def draw(name: str, rule: Rule, page: Page) -> None:
    """Draw one rule's documentation."""
    page.line((name, "bold"))
    page.paragraph(summary(rule))
    for heading, paragraphs in sections(rule).items():
        page.blank()
        page.line((heading, "bold"))
        for paragraph in paragraphs:
            page.paragraph(paragraph, indent=2)
    thresholds = thresholds_of(rule)
    if thresholds:
        page.blank()
        page.line(("Thresholds", "bold"))
        page.paragraph(f"To change them, add a section [thresholds.{name}] to perfwrap.toml.", indent=2)
        for threshold, value in thresholds.items():
            page.line((f"  {threshold} = {value:g}", ""))


def draw_list(rules: Mapping[str, Rule], page: Page) -> None:
    """Draw every rule's id and first sentence."""
    widest = max(len(name) for name in rules)
    for name, rule in rules.items():
        page.paragraph(summary(rule), hanging=name.ljust(widest + 2))
