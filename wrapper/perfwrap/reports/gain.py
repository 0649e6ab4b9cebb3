"""The expected gain of a fix, and the other options, in words."""

from __future__ import annotations

from perfwrap import units
from perfwrap.rules.model import Confidence, Finding, Option

MAX_RATIO = 0.995
"""Above this best-case step-time ratio the gain is too small to name."""
OPEN_WORDS = ("", "a", "and", "at", "from", "in", "of", "on", "or", "the", "to", "with", "DataLoader", "for")
"""Words at which a shortened text does not end."""
WORDS: dict[Confidence, str] = {"measured": "from measured times", "inferred": "estimated"}
"""How sure the figures are."""


def expected(finding: Finding) -> str:
    """Return e.g. ``1.4x to 2.4x faster (step time 41 to 70 % of today's), estimated``; empty without a gain."""
    if finding.saving[0] >= MAX_RATIO:
        return ""
    return f"{units.saving(*finding.saving)}, {WORDS[finding.confidence]}"


def basis(option: Option) -> str:
    """Return what a prediction rests on, e.g. ``12 ms per batch``; empty if it predicts nothing."""
    return "" if option.saving[0] >= MAX_RATIO else option.basis


def alternative(option: Option, columns: int | None = None) -> str:
    """Return an option on one line: what to change, what the prediction rests on, and the step time with it.

    In a shorter line than ``columns`` there is no basis, and the end of what to change may be missing.
    """
    edit = option.edit.removesuffix(".")
    ratios = units.step_time(*option.saving)
    figure = f", step time {ratios}" if ratios else ""
    whole = f"{edit} ({basis(option)}){figure}" if basis(option) else f"{edit}{figure}"
    if columns is None or len(whole) <= columns:
        return whole
    return f"{_clipped(edit, columns - len(figure))}{figure}"


def _clipped(text: str, columns: int) -> str:
    """Return a text in at most so many columns, cut at the end of a word that others need not follow."""
    if len(text) <= columns:
        return text
    words = text[: max(1, columns - 1)].split(" ")[:-1]
    while words and words[-1].strip("(,") in OPEN_WORDS:
        words.pop()
    return f"{' '.join(words).rstrip(',') or text[: max(1, columns - 1)]}…"
