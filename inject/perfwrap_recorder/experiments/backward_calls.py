"""Counts the backward passes for experiments, and keeps the loss of the last one, or those of a step.

Replaces ``torch.autograd.backward``, around the probe. Of a loss only a view without its graph is kept.
"""

from __future__ import annotations

from perfwrap_recorder import guard
from perfwrap_recorder.instrumenting import wrapping
from perfwrap_recorder.program import tensor_access

count = 0
_torch = []
_last = []  # what the last backward pass began with
_of_step = []  # the same of all passes since the last ``read_losses``; None for several elements
_limit = 0  # how many of them are kept

MAX_LOSSES = 256
"""The maximum number of losses of a step that are added up."""


def install(torch):
    """Count from now on; further calls do nothing."""
    if not _torch:
        _torch.append(torch)
        wrapping.patch(torch, torch.autograd, "backward", _make, over=True)


def read_loss():
    """Return the value of the last loss, a float; None if it had several elements or cannot be read.

    This waits for the GPU.
    """
    if not _last or _last[0].numel() != 1:
        return None
    return float(tensor_access.item(_torch[0], _last[0]))


def keep_losses():
    """Keep the losses of all passes from now on, for ``read_losses``."""
    global _limit
    _limit = MAX_LOSSES


def read_losses():
    """Return the sum of the losses since the last call, a float; None as for ``read_loss``.

    An edit may add up losses before one backward pass, instead of one for each.
    """
    losses = _of_step[:]
    del _of_step[:]
    if not losses or any(loss is None for loss in losses):
        return None
    return sum(float(tensor_access.item(_torch[0], loss)) for loss in losses)


def _make(original, is_compiling):
    keep = guard.protect("trial_loss", _keep)

    def wrapper(*arguments, **options):
        if not is_compiling():
            keep(arguments[0] if arguments else options.get("tensors"))
        return original(*arguments, **options)

    return wrapper


def _keep(tensors):
    global count
    count += 1
    torch = _torch[0]
    loss = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
    if type(loss) is torch.Tensor and not torch._C._len_torch_function_stack():
        _last[:] = [loss.detach()]
        if len(_of_step) < _limit:
            _of_step.append(_last[0] if loss.numel() == 1 else None)
