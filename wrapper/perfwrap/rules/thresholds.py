"""The thresholds of the rules: every named number of a rule's module, which users can change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from perfwrap.rules.model import Rule

Thresholds = Mapping[str, Mapping[str, float]]
"""Names of rules -> names of constants -> values."""

UNITS = ("SECOND", "MILLISECOND", "MICROSECOND")
"""Numbers that are not thresholds."""


def thresholds_of(rule: Rule) -> dict[str, float]:
    """Return the rule's thresholds by their names, e.g. ``{"LARGE_SHARE": 0.2, "MIN_REPORTED_SHARE": 0.02}``."""
    return {
        name: value
        for name, value in sorted(vars(rule).items())
        if name.isupper() and type(value) in (int, float) and name not in UNITS
    }


@contextmanager
def applied(rules: Mapping[str, Rule], thresholds: Thresholds) -> Iterator[None]:
    """Use these thresholds inside the context; KeyError for an unknown rule or threshold."""
    before = [
        (vars(rules[rule]), name, thresholds_of(rules[rule])[name])
        for rule, values in thresholds.items()
        for name in values
    ]
    try:
        for rule, values in thresholds.items():
            vars(rules[rule]).update(values)
        yield
    finally:
        for module, name, value in before:
            module[name] = value
