"""What an edit is asked for and what it answers."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

Value = int | float | bool | str


class Target(Struct, frozen=True):
    """Where to edit, and what is wanted there."""

    line: int
    """The line of the source, counted from 1, that a finding names."""
    values: Mapping[str, Value] = {}
    """What the edit needs, e.g. ``{"num_workers": 4}``; each edit's docstring lists its names."""
    words: tuple[str, ...] = ()
    """The words of the user's command: an option that is on it makes its default useless."""
    seen: Mapping[str, Value] = {}
    """What the run had, by the keywords of the call at the line: it tells which of two branches of the source ran."""


class Edited(Struct, frozen=True):
    """A new source text."""

    text: str
    sentence: str
    """One sentence: what was changed, and at which line of the original text."""


class Refused(Struct, frozen=True):
    """No edit."""

    reason: str
    """One sentence."""
    is_elsewhere: bool = False
    """Whether the line has nothing that the edit is for."""


class Refusal(Exception):
    """Raised by an edit that would not be safe, or that finds nothing to change."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NothingThere(Refusal):
    """Raised if the line has nothing that the edit is for: of the edits of a finding, most are for other lines."""
