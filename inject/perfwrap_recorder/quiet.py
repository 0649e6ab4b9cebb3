"""Ask tensors of the program's for values without anybody noticing. Callers see to modes of ``__torch_function__``."""

from __future__ import annotations

FIRST = 64
"""So many numbers, spread over a tensor, stand for all."""
ALONE = 32_767
"""Operations on up to so many numbers start no threads: a child that is forked later could not use those."""


def is_watched(torch):
    """Whether a profiler, a mode, a tracer or a transform of the program's would see what is asked."""
    depth = getattr(torch._C, "_len_torch_dispatch_stack", None)
    functorch = getattr(torch._C, "_functorch", None)
    level = getattr(functorch, "peek_interpreter_stack", None)
    return bool(
        (depth and depth())
        or torch.autograd._profiler_enabled()
        or torch._C._get_tracing_state() is not None
        or (level and level() is not None)
    )


def item(torch, tensor):
    """Return the number of a tensor on the CPU; ``Tensor.item`` is watched, and this is no read of the program's."""
    return (getattr(torch._C, "TensorBase", None) or torch._C._TensorBase).item(tensor)  # before torch 2.2


def fingerprint(torch, tensor):
    """Return what changes when a tensor is written to as a whole, through ``.data``, too, where it is on the CPU.

    On a GPU the host would have to wait for its numbers, so there only how often it was written to counts.
    """
    is_readable = tensor.layout is torch.strided and tensor.is_floating_point()
    if not is_readable or tensor.device.type != "cpu" or is_watched(torch):
        return tensor._version
    with torch.no_grad():
        count = tensor.numel()
        some = tensor.detach().as_strided((min(FIRST, count),), (max(1, count // FIRST),))
        return tensor._version, item(torch, some.double().sum())
