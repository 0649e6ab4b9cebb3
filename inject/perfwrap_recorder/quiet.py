"""Ask tensors of the program's for values without anybody noticing. Callers see to modes of ``__torch_function__``."""

from __future__ import annotations

FIRST = 64
"""So many numbers of a tensor stand for all."""


def is_watched(torch):
    """Whether a profiler or a dispatch mode of the program's would see what is asked."""
    depth = getattr(torch._C, "_len_torch_dispatch_stack", None)
    return bool(depth and depth()) or torch.autograd._profiler_enabled()


def item(torch, tensor):
    """Return the number of a tensor on the CPU; ``Tensor.item`` is watched, and this is no read of the program's."""
    return (getattr(torch._C, "TensorBase", None) or torch._C._TensorBase).item(tensor)  # before torch 2.2


def fingerprint(torch, parameter):
    """Return what changes when a parameter is written to, through ``.data``, too, where it is on the CPU.

    On a GPU the host would have to wait for its numbers, so there only how often it was written to counts.
    """
    is_readable = parameter.layout is torch.strided and parameter.is_floating_point()
    if not is_readable or parameter.device.type != "cpu" or is_watched(torch):
        return parameter._version
    with torch.no_grad():
        first = parameter.detach().as_strided((min(FIRST, parameter.numel()),), (1,))
        return parameter._version, item(torch, first.double().sum())
