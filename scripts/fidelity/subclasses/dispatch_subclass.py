"""A wrapper subclass of __torch_dispatch__ as a parameter that is moved, trained, flattened, copied and saved."""

import copy
import io

import torch
from moments import check, digest, kind, watch
from torch.utils import _pytree as pytree

log = []


class Logged(torch.Tensor):
    """Holds a tensor and notes each operator."""

    @staticmethod
    def __new__(cls, inner):
        """Return a wrapper of the inner one's looks."""
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device, requires_grad=inner.requires_grad
        )

    def __init__(self, inner):
        self.inner = inner

    def __repr__(self):
        """Show what is inside."""
        return f"Logged({self.inner!r})"

    def __tensor_flatten__(self):
        """Name the inner tensors."""
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        """Put it together again."""
        return Logged(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        """Note the operator and run it on what is inside."""
        log.append(str(func))
        args, kwargs = pytree.tree_map_only(Logged, lambda t: t.inner, (args, kwargs or {}))
        out = func(*args, **kwargs)
        return pytree.tree_map_only(torch.Tensor, Logged, out)


def made():
    """Return one of three numbers."""
    return Logged(torch.tensor([1.0, 0.0, 2.0]))


CALLS = {
    "to": lambda t: t.to(torch.float64),
    "device": lambda t: t.to("cpu"),
    "copy": lambda t: t.to("cpu", copy=True),
    "cpu": lambda t: t.cpu(),
    "copy_": lambda t: t.copy_(torch.ones(3)),
    "into": lambda t: torch.zeros(3).copy_(t),
    "nonzero": lambda t: t.nonzero(),
    "item": lambda t: t[0].item(),
    "tolist": lambda t: t.tolist(),
    "bool": lambda t: bool(t[0]),
    "deepcopy": copy.deepcopy,
    "clone": torch.clone,
    "numpy": lambda t: t.numpy(),
    "select": lambda t: t.masked_select(t > 0),
    "half": lambda t: t.half(),
    "repr": repr,
    "equal": lambda t: t.equal(t),
    "pin": lambda t: t.is_pinned(),
    "float": lambda t: float(t[2]),
    "index": lambda t: t[t > 0],
}


@check
def calls():
    """What each call gives and which operators it is made of."""
    found = []
    for name, call in CALLS.items():
        log.clear()
        try:
            value = call(made())
            text = digest(value.inner) if isinstance(value, Logged) else str(value)
            found.append(f"{name} {kind(value)} {text} {log}")
        except Exception as error:
            found.append(f"{name} {type(error).__name__} {str(error)[:60]} {log}")
    return "\n    ".join(found)


@check
def learns():
    """A layer whose weight is one is moved, trained, saved and loaded."""
    log.clear()
    layer = torch.nn.Linear(3, 2)
    layer.weight = torch.nn.Parameter(Logged(layer.weight.detach()))
    layer = layer.double().to("cpu").float()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.ones(2, 3)).sum().backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    return kind(layer.weight), digest(layer.weight.detach().inner), log


watch(counted=False)
