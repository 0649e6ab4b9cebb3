"""Sets ``prefetch_factor`` of each DataLoader that has workers; refuses for one without."""

from __future__ import annotations

from perfwrap_recorder.experiments import loader_arguments

DEFAULT = 2
"""Torch's default if there are workers."""


def install(torch, change):
    """Make each worker prefetch this many batches."""
    wanted = int(change.value)

    def adjust(making):
        if not making.get("num_workers"):
            change.refuse("the loader has no workers that could make batches in advance")
        elif (making.get("prefetch_factor") or DEFAULT) != wanted:
            making.set(change, "prefetch_factor", wanted)

    loader_arguments.add(torch, change, adjust)
