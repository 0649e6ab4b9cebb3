"""Comparisons as strict JSON; described in docs/comparing.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perfwrap import units
from perfwrap.comparison.comparing import Comparison
from perfwrap.comparison.judgement import Judgement
from perfwrap.comparison.noise import Change

FORMAT = 1
"""Version of the document. 1: first."""

SCHEMA = Path(__file__).with_name("comparison.schema.json")
"""The JSON Schema of the document, with and without the result of a check."""


def document(comparisons: Sequence[Comparison], judgement: Judgement | None = None) -> dict[str, Any]:
    """Return the comparisons, and the result of a check, as plain values."""
    judged = {} if judgement is None else {"check": asdict(judgement)}
    return {"format": FORMAT, **judged, "comparisons": [_comparison(found) for found in comparisons]}


def _comparison(found: Comparison) -> dict[str, Any]:
    """Return one comparison."""
    return {
        "before": found.before,
        "after": found.after,
        "before_runs": list(found.before_runs),
        "after_runs": list(found.after_runs),
        "outcome": found.outcome,
        "sentence": found.sentence,
        "typical_step": _change(found.typical),
        "mean_step": _change(found.whole),
        "obstacles": [asdict(obstacle) for obstacle in found.obstacles],
        "allowed": [asdict(obstacle) for obstacle in found.allowed],
        "cautions": list(found.cautions),
        "account": [
            {
                "part": part.part,
                "before_ns": round(part.before_ns),
                "after_ns": round(part.after_ns),
                "beyond_noise": part.is_real,
            }
            for part in found.parts
        ],
        "findings": [
            {"rule": change.rule, "before": change.before, "after": change.after, "why": change.why}
            for change in found.findings
        ],
        "conditions": [asdict(change) for change in found.conditions],
    }


def _change(change: Change | None) -> dict[str, Any] | None:
    """Return one figure of both runs with its noise."""
    if change is None:
        return None
    ratios = {"ratio": change.ratio, "low": change.low, "high": change.high, "noise": change.noise}
    return {
        "before_ns": round(change.before_ns),
        "after_ns": round(change.after_ns),
        **{
            name: units.significant(value, 4) if math.isfinite(value) else None
            for name, value in ratios.items()
        },
        "beyond_noise": change.is_real,
    }
