"""Facts that may change while the program runs: each is written when it differs from what was last written."""

from __future__ import annotations

from perfwrap_recorder.journal import journal

_written = {}  # key -> value as last written


def write(key, value):
    """Write a fact that is new or has changed; None is not written."""
    if value is not None and _written.get(key) != value:
        _written[key] = value
        journal.fact(key, value)


def forget():
    """Write all facts again, in the child of a fork."""
    _written.clear()
