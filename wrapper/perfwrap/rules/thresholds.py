"""The thresholds of the rules: the fields of each rule's ``Limits``, which users can change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from perfwrap.rules.model import Rule, rule_id

Thresholds = Mapping[str, Mapping[str, float]]
"""Names of rules -> names of thresholds -> the values that a user has set."""


def thresholds_of(rule: Rule) -> dict[str, float]:
    """Return the rule's thresholds with their defaults, e.g. ``{"large_share": 0.2, "min_reported_share": 0.02}``."""
    return dict(sorted(asdict(rule.Limits()).items()))


def limits_of(rules: Sequence[Rule], thresholds: Thresholds) -> dict[str, Any]:
    """Return the ``Limits`` of each rule, by the rule's id: the defaults, and the values that a user has set.

    KeyError for an unknown rule, TypeError for an unknown threshold.
    """
    limits = {rule_id(rule): rule.Limits() for rule in rules}
    for rule, values in thresholds.items():
        limits[rule] = replace(limits[rule], **values)
    return limits
