"""Nested tensors of both layouts: made, moved, padded, multiplied, trained."""

import copy
import pickle
import warnings

import torch
from moments import check, digest, kind, watch

warnings.filterwarnings("ignore", message=".*nested tensors is in prototype.*")
LAYOUTS = torch.strided, torch.jagged


def made(layout, grad=False):
    """Return a nested tensor of three rows."""
    rows = [torch.arange(float(n * 4)).reshape(n, 4) for n in (2, 3, 1)]
    return torch.nested.nested_tensor(rows, layout=layout, requires_grad=grad)


CALLS = {
    "to": lambda t: t.to(torch.float64),
    "to cpu": lambda t: t.to("cpu"),
    "cpu": lambda t: t.cpu(),
    "half": lambda t: t.half(),
    "clone": lambda t: t.clone(),
    "detach": lambda t: t.detach(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda t: pickle.loads(pickle.dumps(t)),
    "sin": torch.sin,
    "copy_": lambda t: t.clone().copy_(t * 2),
    "add": lambda t: t + t,
    "relu": torch.nn.functional.relu,
    "like": torch.ones_like,
    "matmul": lambda t: t @ torch.ones(4, 2),
    "linear": torch.nn.Linear(4, 3),
    "norm": torch.nn.LayerNorm(4),
    "tolist": lambda t: t.tolist(),
    "item": lambda t: t.item(),
    "numpy": lambda t: t.numpy(),
    "is_pinned": lambda t: t.is_pinned(),
    "bool": bool,
    "nonzero": lambda t: t.nonzero(),
}


@check
def calls():
    """What each call gives for each layout."""
    found = []
    for layout in LAYOUTS:
        for name, call in CALLS.items():
            try:
                value = call(made(layout))
                parts = value.unbind() if getattr(value, "is_nested", False) else [value]
                text = " ".join(digest(p) if isinstance(p, torch.Tensor) else str(p) for p in parts)
                found.append(f"{layout} {name} {kind(value)} {text}")
            except Exception as error:
                found.append(f"{layout} {name} {type(error).__name__} {str(error)[:60]}")
    return "\n    ".join(found)


@check
def learns():
    """A layer learns from nested rows."""
    found = []
    for layout in LAYOUTS:
        layer = torch.nn.Linear(4, 2)
        torch.nested.to_padded_tensor(layer(made(layout).to(torch.float32)), 0.0).sum().backward()
        found.append(digest(layer.weight.grad))
    return found


torch.manual_seed(7)
CALLS["linear"] = torch.nn.Linear(4, 3)
watch()
