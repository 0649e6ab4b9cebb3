"""One or more changes that are made together, and what a gain by them would mean."""

from __future__ import annotations

from dataclasses import dataclass

from perfwrap.errors import PerfwrapError
from perfwrap.experiments.changes import BY_NAME, CEILING, FIX, NUMERICS, checked

NONE = "none"
"""The program once more, unchanged: what the ratio of such a variant is off by is noise."""

JOINT = "+"

KINDS = {
    FIX: "keeps the meaning of the program",
    NUMERICS: "changes rounding, or how many samples a step learns from",
    CEILING: "changes the program: an upper bound of what a fix could bring",
}
"""From the most harmless to what is no edit at all."""


@dataclass(frozen=True)
class Variant:
    """Changes as a user types them: ``workers=2+pin-memory``."""

    name: str

    @property
    def changes(self) -> tuple[str, ...]:
        """The changes, each as ``perfwrap run --change`` takes it; none for ``none``."""
        return () if self.name == NONE else tuple(self.name.split(JOINT))

    @property
    def kind(self) -> str:
        """The kind of the change that asks most of the user."""
        order = list(KINDS)
        kinds = [BY_NAME[name_of(change)].kind for change in self.changes]
        return max(kinds, key=order.index, default=FIX)


def parse(text: str) -> Variant:
    """Return the variant that a word of the command line means; PerfwrapError where nobody knows it."""
    if text == NONE:
        return Variant(NONE)
    if not text.strip(JOINT):
        raise PerfwrapError(f"{text!r} names no change.", f"There are: {', '.join(BY_NAME)}.")
    return Variant(JOINT.join(checked([text])))


def name_of(change: str) -> str:
    """Return the name of a change without its value."""
    return change.partition("=")[0]


def value_of(change: str) -> str:
    """Return the value of a change, or nothing."""
    return change.partition("=")[2]
