"""The changes that can be injected into a program: their names, what they take, and what kind each is.

The recorder has the same table (``perfwrap_recorder.changes``), which nothing here may import; a test compares
them. docs/changes.md says what each replaces and when it refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from perfwrap.errors import PerfwrapError

FIX = "fix"
"""Keeps the meaning of the program."""
NUMERICS = "numerics"
"""Changes rounding, or what is learned from how many samples at a time."""
CEILING = "ceiling"
"""An upper bound that changes the program: what the best fix could bring."""

COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

MOST = 1_000_000
"""No number of a change's may be larger."""


@dataclass(frozen=True)
class Change:
    """One change: ``takes`` is "" for none, ``N`` for a number from ``least`` on, ``MODE`` for one of compile's."""

    name: str
    kind: str
    takes: str = ""
    least: int = 0


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
"""In the order in which they are installed, whatever the order on the command line."""

BY_NAME = {change.name: change for change in CHANGES}

EXCLUDE_EACH_OTHER = (("bf16", "fp16"),)


def find(word: str) -> Change:
    """Return the change that a word such as ``workers=8`` asks for; PerfwrapError where there is none."""
    name, equals, value = word.partition("=")
    change = BY_NAME.get(name)
    if change is None:
        raise PerfwrapError(f"There is no change called {name!r}.", f"There are: {', '.join(BY_NAME)}.")
    if change.takes == "N":
        if not re.fullmatch("[0-9]{1,7}", value) or not change.least <= int(value) <= MOST:
            raise PerfwrapError(f"{word!r} lacks its number.", f"For example: {name}=8")
    elif change.takes == "MODE":
        if equals and value not in COMPILE_MODES:
            raise PerfwrapError(
                f"torch.compile has no mode {value!r}.", f"It has: {', '.join(COMPILE_MODES)}."
            )
    elif equals:
        raise PerfwrapError(f"{name} takes no value.", f"Write just: {name}")
    return change


def checked(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words of several changes that go together, also joined by ``+``; PerfwrapError otherwise."""
    split = tuple(part for word in words for part in word.split("+"))
    names = [find(word).name for word in split]
    for name in names:
        if names.count(name) > 1:
            raise PerfwrapError(f"{name} is asked for twice.", "A change can have one value in a run.")
    for group in EXCLUDE_EACH_OTHER:
        if len(set(group) & set(names)) > 1:
            raise PerfwrapError(f"{' and '.join(group)} exclude each other.", "Ask for one of them.")
    return split
