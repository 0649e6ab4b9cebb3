"""The changes that can be injected into a program: their names, values and kinds.

The recorder has the same table (``perfwrap_recorder.changes``), which this file must not import; a test compares both.
docs/changes.md describes what each change replaces and when it refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from perfwrap.errors import PerfwrapError

FIX = "fix"
"""Keeps the meaning of the program."""
NUMERICS = "numerics"
"""Changes rounding, or the number of samples per step."""
CEILING = "ceiling"
"""Changes the result of the program: an upper bound for the gain of a fix."""

COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

MAX_VALUE = 1_000_000
"""Largest number that a change takes."""


class Change(Struct, frozen=True):
    """One change: ``takes`` is "" for none, ``N`` for a number of at least ``minimum``, ``MODE`` for a compile mode."""

    name: str
    kind: str
    takes: str = ""
    minimum: int = 0


CHANGES = (
    Change("expandable-segments", FIX),
    Change("no-debug", FIX),
    Change("threads", FIX, "N", 1),
    Change("batch-size", NUMERICS, "N", 1),
    Change("workers", FIX, "N"),
    Change("prefetch", FIX, "N", 1),
    Change("pin-memory", FIX),
    Change("persistent-workers", FIX),
    Change("cached-batch", CEILING),
    Change("non-blocking", FIX),
    Change("tf32", NUMERICS),
    Change("cudnn-benchmark", FIX),
    Change("compile", NUMERICS, "MODE"),
    Change("bf16", NUMERICS),
    Change("fp16", NUMERICS),
    Change("channels-last", FIX),
    Change("fused-optimizer", FIX),
    Change("set-to-none", FIX),
    Change("no-empty-cache", FIX),
    Change("defer-item", CEILING),
    Change("no-checkpoint", CEILING),
    Change("no-validation", CEILING),
    Change("gc-freeze", FIX),
)
"""In the order of installation, which does not depend on the command line."""

BY_NAME = {change.name: change for change in CHANGES}

EXCLUDE_EACH_OTHER = (("bf16", "fp16"),)


def find(word: str) -> Change:
    """Return the change for a word such as ``workers=8``; PerfwrapError if there is none."""
    name, equals, value = word.partition("=")
    change = BY_NAME.get(name)
    if change is None:
        raise PerfwrapError(f"There is no change {name!r}.", f"Use one or more of: {', '.join(BY_NAME)}.")
    if change.takes == "N":
        if not re.fullmatch("[0-9]{1,7}", value) or not change.minimum <= int(value) <= MAX_VALUE:
            raise PerfwrapError(
                f"{word!r} needs a number, {change.minimum} or larger.", f"For example: {name}=8"
            )
    elif change.takes == "MODE":
        if equals and value not in COMPILE_MODES:
            raise PerfwrapError(
                f"torch.compile has no mode {value!r}.", f"Use one of: {', '.join(COMPILE_MODES)}."
            )
    elif equals:
        raise PerfwrapError(f"{name} takes no value.", f"Write only: {name}")
    return change


def checked(words: Iterable[str]) -> tuple[str, ...]:
    """Return changes that can be combined, given as words or joined by ``+``; PerfwrapError otherwise."""
    split = tuple(part for word in words for part in word.split("+"))
    names = [find(word).name for word in split]
    for name in names:
        if names.count(name) > 1:
            raise PerfwrapError(f"{name} was given twice.", "Give each change once per run.")
    for group in EXCLUDE_EACH_OTHER:
        if len(set(group) & set(names)) > 1:
            raise PerfwrapError(f"{' and '.join(group)} exclude each other.", "Give one of them.")
    return split
