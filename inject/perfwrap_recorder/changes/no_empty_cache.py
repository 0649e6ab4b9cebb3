"""Skips the calls of ``torch.cuda.empty_cache``; refuses on the CPU."""

from __future__ import annotations

from sys import _getframe

from perfwrap_recorder import guard
from perfwrap_recorder.instrumenting import wrapping


def install(torch, change):
    """Skip them from now on."""
    if not change.needs_gpu(torch):
        return

    def make(original, _):
        def wrapper():
            guard.run(change.key, change.apply, _getframe().f_back, "torch.cuda.empty_cache()", "left out")

        return wrapper

    wrapping.patch(torch, torch.cuda.memory, "empty_cache", make, over=True)
    torch.cuda.empty_cache = torch.cuda.memory.empty_cache
