"""Copies tensors from pinned memory to a GPU with ``non_blocking=True`` if the program does not set it.

Replaces ``Tensor.to`` and ``Tensor.cuda``, around the probe. Refuses on the CPU, and for tensors that are not in pinned
memory: from there no copy is asynchronous.
"""

from __future__ import annotations

from sys import _getframe

from perfwrap_recorder import guard
from perfwrap_recorder.instrumenting import wrapping

UNPINNED = "the batches are not in pinned memory: try it together with pin-memory"


def install(torch, change):
    """Make such copies asynchronous."""
    if not change.needs_gpu(torch):
        return

    def prepare(name, tensor, arguments, options, frame):
        if not is_silent(arguments, options) or type(tensor) is not torch.Tensor or not tensor.is_cpu:
            return None
        if name == "to" and not is_gpu(torch, target_of(arguments, options)):
            return None
        if not tensor.is_pinned():
            change.refuse(UNPINNED)
            return None
        change.apply(frame, ".%s()" % name, ".%s(non_blocking=True)" % name)
        return {**options, "non_blocking": True}

    for name in ("to", "cuda"):
        wrapping.patch(torch, torch.Tensor, name, _maker(change, name, prepare), over=True)


def _maker(change, name, prepare):
    def make(original, is_compiling):
        def wrapper(self, *arguments, **options):
            if is_compiling():
                return original(self, *arguments, **options)
            found = guard.run(change.key, prepare, name, self, arguments, options, _getframe().f_back)
            return original(self, *arguments, **(found or options))

        return wrapper

    return make


def is_silent(arguments, options):
    """Return whether a call does not set the flag, which is its first bool."""
    return "non_blocking" not in options and not any(type(value) is bool for value in arguments)


def target_of(arguments, options):
    """Return the target of a call of ``to``: a device, its name or number, or a tensor."""
    return options.get("device", options.get("other", arguments[0] if arguments else None))


def is_gpu(torch, target):
    """Return whether a target is a GPU."""
    if isinstance(target, str):
        return target.startswith("cuda")
    if isinstance(target, torch.device):
        return target.type == "cuda"
    return type(target) is int or (type(target) is torch.Tensor and target.is_cuda)
