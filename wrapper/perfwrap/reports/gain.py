"""The expected gain of a fix, and the other options, in words."""

from __future__ import annotations

from perfwrap import units
from perfwrap.rules.model import Confidence, Finding, Option

MAX_RATIO = 0.995
"""Above this best-case step-time ratio the gain is too small to name."""
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
    """Return an option in one sentence: what to change, what the prediction rests on, and the step time with it.

    A sentence that would be longer than ``columns`` has no basis; it may be longer even so.
    """
    edit = option.edit.removesuffix(".")
    ratios = units.step_time(*option.saving)
    figure = f", step time {ratios}" if ratios else ""
    whole = f"{edit} ({basis(option)}){figure}" if basis(option) else f"{edit}{figure}"
    return whole if columns is None or len(whole) <= columns else f"{edit}{figure}"
