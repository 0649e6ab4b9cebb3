"""The expected gain of a fix, in words."""

from __future__ import annotations

from perfwrap import units
from perfwrap.rules.model import Confidence, Finding

MAX_RATIO = 0.995
"""Above this best-case step-time ratio the gain is too small to name."""
WORDS: dict[Confidence, str] = {"measured": "from measured times", "inferred": "estimated"}
"""How sure the figures are."""


def expected(finding: Finding) -> str:
    """Return e.g. ``1.4x to 2.4x faster (step time 41 to 70 % of today's), estimated``; empty without a gain."""
    if finding.saving[0] >= MAX_RATIO:
        return ""
    return f"{units.saving(*finding.saving)}, {WORDS[finding.confidence]}"
