"""Facts that may change while the program runs: each is written when it differs from what was last written."""

from __future__ import annotations

from perfwrap_recorder import journal

_said = {}  # key -> value as last written


def say(key, value):
    """Write a fact that is new or has changed; None is no fact."""
    if value is not None and _said.get(key) != value:
        _said[key] = value
        journal.fact(key, value)


def forget():
    """Have everything said again, in the child of a fork."""
    _said.clear()
