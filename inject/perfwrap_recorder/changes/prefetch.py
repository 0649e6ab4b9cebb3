"""Sets ``prefetch_factor`` of each DataLoader that has workers; refuses for one without."""

from __future__ import annotations

from perfwrap_recorder import loader_arguments

DEFAULT = 2
"""What torch takes for None where there are workers."""


def install(torch, change):
    """Have each worker make so many batches in advance."""
    wanted = int(change.value)

    def adjust(making):
        if not making.get("num_workers"):
            change.refuse("the loader has no workers that could make batches in advance")
        elif (making.get("prefetch_factor") or DEFAULT) != wanted:
            making.set(change, "prefetch_factor", wanted)

    loader_arguments.add(torch, change, adjust)
