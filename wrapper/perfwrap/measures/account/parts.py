"""The exclusive parts of the account, and the part of each recorded event."""

from __future__ import annotations

PARTS = (
    "data",
    "transfer",
    "forward",
    "backward",
    "optimizer",
    "sync",
    "checkpoint",
    "validation",
    "compile",
    "gc",
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
        "optimizer",
        "sync",
        "checkpoint",
        "compile",
        "gc",
        "perfwrap",
    )
}
"""The part of each category of spans; all others are ``python``."""

WHOLES = ("data", "checkpoint")
"""Categories whose spans include what happens inside: a value read while a batch is made is part of the batch."""

INTERRUPTIONS = ("gc", "perfwrap")
"""Categories that are never part of what they interrupt."""

INSIDES = ("fetch", "getitem", "collate", "pin")
"""Operations of the data category that are always inside a wait for a batch, or in another thread: their sums are part
of the sums of the waits."""
