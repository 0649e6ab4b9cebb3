"""How many backward passes a program runs per optimizer step, and at which line."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from perfwrap.measures.account.lines import Line, parse_key
from perfwrap.measures.steps.steps import Steps


class Accumulation(Struct, frozen=True):
    """The busiest line of backward passes: how many there are per optimizer step."""

    where: Line | None
    per_step: float


def find_accumulation(steps: Steps) -> Accumulation | None:
    """Return the median over the steady, detailed steps; None without backward passes.

    Several optimizer steps in one step of the loop (as in a GAN) count as several.
    """
    table = steps.table.filter("steady", "detailed")
    backward, optimizer = steps.events.backward, steps.events.optimizer
    if table.is_empty() or not len(backward) or not len(optimizer):
        return None
    keys, counts = np.unique(backward.key, return_counts=True)
    key = int(keys[counts.argmax()])
    start, end = table["start"].to_numpy(), table["end"].to_numpy()
    passes = backward.only(backward.key == key)
    many = np.searchsorted(passes.start, end) - np.searchsorted(passes.start, start)
    steps_taken = np.searchsorted(optimizer.start, end) - np.searchsorted(optimizer.start, start)
    known = steps_taken > 0
    if not known.any():
        return None
    return Accumulation(
        parse_key(steps.events.names[key]), float(np.median(many[known] / steps_taken[known]))
    )
