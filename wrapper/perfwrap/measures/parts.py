"""The exclusive parts of the account, and which part the time of a recorded event belongs to."""

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
"""The exclusive parts, in the order in which reports show them."""

UNKNOWN = "unknown"
"""Stands for all parts of an imported loop in which nothing tells what the program did."""
UNTOLD = "The imported files do not tell what the program did in its steps."

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
"""The part of each category of spans; the others are ``python``: nobody claims to know them better."""

WHOLES = ("data", "checkpoint")
"""Categories whose spans own what happens inside: a value read while a batch is made is part of the batch."""

INTERRUPTIONS = ("gc", "perfwrap")
"""Categories that are never part of what they interrupt."""

INSIDES = ("fetch", "getitem", "collate", "pin")
"""Operations of the data category that only ever lie inside of a wait for a batch, or in another thread: their
sums are part of the sums of the waits."""
