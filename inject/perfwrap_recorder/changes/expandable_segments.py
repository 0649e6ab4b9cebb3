"""Makes PyTorch's allocator use segments that can grow: ``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True``.

It is set before torch is loaded, in addition to other options. Refuses on the CPU, if it is set already, for another
allocator, and if the program sets the variable itself.
"""

from __future__ import annotations

import os

NAMES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
"""The first is the newer name; PyTorch uses the newest that it knows."""
OPTION = "expandable_segments:True"

_set = []  # (name, value before, value now)


def prepare(change):
    """Set the variable."""
    name = next((name for name in NAMES if os.environ.get(name)), NAMES[1])
    before = os.environ.get(name, "")
    if "expandable_segments" in before:
        change.refuse("%s says already %s" % (name, before))
    elif "cudaMallocAsync" in before:
        change.refuse("%s chooses an allocator that has no segments" % name)
    else:
        os.environ[name] = before + "," + OPTION if before else OPTION
        _set.append((name, before, os.environ[name]))


def install(torch, change):
    """Check, at the end, whether a GPU was used with it."""
    if not _set or not change.needs_gpu(torch):
        return
    name, before, after = _set[0]

    def look():
        if os.environ.get(name) != after:
            change.take_back("the program sets %s itself" % name)
        elif torch.cuda.is_initialized() and not change.count:
            change.apply(None, "%s=%s" % (name, before), "%s=%s" % (name, after))

    change.checks.append(look)
