"""Sets ``pin_memory=True`` of each DataLoader; refuses if there is no GPU to copy to."""

from __future__ import annotations

from perfwrap_recorder.experiments import loader_arguments


def install(torch, change):
    """Make each loader put its batches into pinned memory."""
    if not change.needs_gpu(torch):
        return

    def adjust(making):
        if making.get("pin_memory"):
            return
        # The loader itself checks the same when it is iterated.
        if not torch.cuda.is_available():
            change.refuse("there is no GPU that pinned memory would serve")
        else:
            making.set(change, "pin_memory", True)

    loader_arguments.add(torch, change, adjust)
