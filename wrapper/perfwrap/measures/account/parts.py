"""The exclusive parts of the account, and the part of each recorded event."""

from __future__ import annotations

PARTS = (
    "data",
    "transfer",
    "forward",
    "backward",
    "recompute",
    "optimizer",
    "sync",
    "checkpoint",
    "validation",
    "compile",
    "gc",
    "profiler",
    "perfwrap",
    "python",
)
"""The exclusive parts, in display order."""

UNKNOWN = "unknown"
"""Replaces all parts of an imported loop whose phases are unknown."""
NO_PHASES = "The imported files do not contain the phases of a step."

PART_OF = {
    category: category
    for category in (
        "data",
        "transfer",
        "forward",
        "backward",
        "recompute",
        "optimizer",
        "sync",
        "checkpoint",
        "compile",
        "gc",
        "profiler",
        "perfwrap",
    )
}
"""The part of each category of spans; all others are ``python``."""

WHOLES = ("data", "checkpoint")
"""Categories whose spans include what happens inside: a value read while a batch is made is part of the batch."""

DEEP_WHOLES = ("profiler",)
"""The same, and garbage collections are part of them too: they visit the objects that the call makes. Spans of the same
category inside remain, because they have the lines that cost most."""

REPEATED = {"recompute": ("forward",)}
"""Categories whose spans repeat others: what happens inside of these is part of the repetition."""

INTERRUPTIONS = ("gc", "perfwrap")
"""Categories that are never part of what they interrupt."""

INSIDES = ("fetch", "getitem", "collate", "pin", "closure")
"""Operations that are always inside another one, or in another thread: their sums are part of the sums of that."""

OPEN = ("closure",)
"""Operations that show where the program's own code is, with events inside: a function given to an optimizer."""
