"""Sets ``persistent_workers=True`` of each DataLoader that has workers; refuses for one without."""

from __future__ import annotations

from perfwrap_recorder.experiments import loader_arguments


def install(torch, change):
    """Keep workers from one epoch to the next."""

    def adjust(making):
        if not making.get("num_workers"):
            change.refuse("the loader has no workers that could live on")
        else:
            making.set(change, "persistent_workers", True)

    loader_arguments.add(torch, change, adjust)
