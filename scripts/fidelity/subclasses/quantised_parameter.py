"""A Parameter that packs itself when it is moved, as 4-bit weights do, with its own to, cuda and cpu."""

import copy
import pickle

import torch
from moments import check, digest, watch
from torch import nn

log = []


class Packed(nn.Parameter):
    """Packs at its first move to a device; keeps what it needs to unpack beside the data."""

    def __new__(cls, data, scale=None):
        """Return a parameter over the data."""
        self = torch.Tensor._make_subclass(cls, data, False)
        self.scale = scale
        return self

    def pack(self):
        """Pack the data in place."""
        if self.scale is None:
            self.scale = self.data.abs().max()
            self.data = (self.data / self.scale * 127).round().to(torch.int8)
        return self

    def to(self, *args, **kwargs):
        """Pack, then move."""
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        log.append(f"to {device} {dtype}")
        if device is not None:
            self.pack()
        moved = super().to(device=device) if device is not None else super().to(*args, **kwargs)
        return Packed(moved, self.scale)

    def cpu(self):
        """Move to the CPU."""
        log.append("cpu")
        return self.to(device="cpu")

    def __deepcopy__(self, memo):
        """Copy data and scale."""
        return Packed(copy.deepcopy(self.data, memo), copy.deepcopy(self.scale, memo))

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        """Pass, but for chunks, which stay packed, as bitsandbytes has it."""
        if func in (torch.chunk, torch.split, torch.Tensor.to, torch.Tensor.copy_, torch.Tensor.clone):
            log.append(torch.overrides.resolve_name(func))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class PackedLinear(nn.Linear):
    """A layer with a packed weight."""

    def __init__(self):
        super().__init__(4, 4)
        self.weight = Packed(self.weight.data)

    def forward(self, x):
        """Unpack and multiply."""
        weight = self.weight.data.to(x.dtype)
        return nn.functional.linear(x, weight * self.weight.scale / 127, self.bias.to(x.dtype))


MOVES = {
    "to": lambda m: m.to("cpu"),
    "cpu": lambda m: m.cpu(),
    "deepcopy": lambda m: copy.deepcopy(m.to("cpu")),
    "dtype": lambda m: m.to("cpu", torch.float64),
    "cuda": lambda m: m.cuda(),
    "half": lambda m: m.to("cpu").half(),
    "reduce": lambda m: pickle.loads(pickle.dumps(m.to("cpu"))),
    "outer": lambda m: nn.Sequential(m).to("cpu")[0],
}


@check
def moves():
    """What a layer with a packed weight is after each move, and which methods ran."""
    found = []
    for name, move in MOVES.items():
        torch.manual_seed(5)
        log.clear()
        try:
            layer = move(PackedLinear())
            weight = layer.weight
            found.append(
                f"{name} {type(weight).__name__} {digest(weight.data)} {digest(layer(torch.ones(1, 4)))} {log}"
            )
        except Exception as error:
            found.append(f"{name} {type(error).__name__} {str(error)[:60]} {log}")
    return "\n    ".join(found)


watch()
