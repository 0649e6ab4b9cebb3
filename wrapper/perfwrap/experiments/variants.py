"""One or more changes that are made together, and what kind of change they are."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from perfwrap.errors import PerfwrapError
from perfwrap.experiments.changes import BY_NAME, CEILING, FIX, NUMERICS, checked

BASELINE = "baseline"
"""The unchanged program."""

NONE = "none"
"""The unchanged program once more: the deviation of its ratio from 1 is noise."""

JOINT = "+"

KINDS = {
    FIX: "does not change the result of the program",
    NUMERICS: "changes rounding, or the number of samples per step",
    CEILING: "changes the result of the program: an upper bound for the gain of a fix",
}
"""From the most harmless to what is not an edit."""


class Variant(Struct, frozen=True):
    """Changes as a user types them: ``workers=2+pin-memory``."""

    name: str
    overlay: Path | None = None
    """The file of ``launch/overlay_file.py`` with edited source, instead of changes."""

    @property
    def changes(self) -> tuple[str, ...]:
        """The changes, each as ``perfwrap run --change`` takes it."""
        is_unchanged = self.name in (BASELINE, NONE) or self.overlay is not None
        return () if is_unchanged else tuple(self.name.split(JOINT))

    @property
    def kind(self) -> str:
        """The kind of the least harmless change."""
        order = list(KINDS)
        kinds = [BY_NAME[name_of(change)].kind for change in self.changes]
        return max(kinds, key=order.index, default=FIX)


def parse(text: str) -> Variant:
    """Return the variant that a word of the command line means; PerfwrapError for an unknown one."""
    if text == NONE:
        return Variant(NONE)
    if not text.strip(JOINT):
        raise PerfwrapError(f"{text!r} is not a change.", f"Use one or more of: {', '.join(BY_NAME)}.")
    return Variant(JOINT.join(checked([text])))


def name_of(change: str) -> str:
    """Return the name of a change without its value."""
    return change.partition("=")[0]


def value_of(change: str) -> str:
    """Return the value of a change, or nothing."""
    return change.partition("=")[2]
