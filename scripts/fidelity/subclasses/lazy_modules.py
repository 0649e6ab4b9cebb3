"""Lazy modules of every kind are moved, converted, copied, pickled and loaded before their shapes are known."""

import copy
import io
import pickle

import torch
from moments import check, digest, watch
from torch import nn

KINDS = {
    "LazyLinear": ((5,), (2, 3)),
    **{f"LazyConv{n}d": ((4, 2), (2, 3, *[6] * n)) for n in (1, 2, 3)},
    **{f"LazyConvTranspose{n}d": ((4, 2), (2, 3, *[6] * n)) for n in (1, 2, 3)},
    **{f"LazyBatchNorm{n}d": ((), (2, 3, *[6] * n)) for n in (1, 2, 3)},
    **{f"LazyInstanceNorm{n}d": ((1e-5, 0.1, True, True), (2, 3, *[6] * n)) for n in (1, 2, 3)},
}
MOVES = {
    "to": lambda m: m.to("cpu"),
    "to dtype": lambda m: m.to(torch.float64),
    "cpu": lambda m: m.cpu(),
    "double": lambda m: m.double(),
    "half, float": lambda m: m.half().float(),
    "bfloat16": lambda m: m.bfloat16(),
    "share_memory": lambda m: m.share_memory(),
    "requires_grad_": lambda m: m.requires_grad_(False),
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "Sequential.to": lambda m: nn.Sequential(m, nn.Identity()).to("cpu", torch.float64)[0],
    "to_empty": lambda m: m.to_empty(device="cpu"),
}


def moved(move):
    """Return what each kind is after a move, and what it answers once its shapes are known."""
    found = []
    for name, (arguments, shape) in KINDS.items():
        torch.manual_seed(5)
        try:
            module = move(getattr(nn, name)(*arguments))
            state = [
                f"{key} {type(value).__name__} {value.dtype}" for key, value in module.state_dict().items()
            ]
            answer = digest(module(torch.ones(shape, dtype=next(module.parameters()).dtype)))
            found.append(f"{name} {' '.join(state)} -> {type(module).__name__} {answer}")
        except Exception as error:
            found.append(f"{name} {type(error).__name__} {str(error).partition(' at 0x')[0][:90]}")
    return "\n    ".join(found)


for name, move in MOVES.items():
    check(type(name, (), {"__name__": name, "__call__": lambda self, move=move: moved(move)})())


@check
def loading():
    """A lazy model takes the shapes from a state that is loaded, and a lazy state is loaded, too."""
    ready, lazy = (
        nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5)),
        nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d()),
    )
    file = io.BytesIO()
    torch.save(ready.state_dict(), file)
    file.seek(0)
    lazy.to("cpu").load_state_dict(torch.load(file))
    other = nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d())
    other.load_state_dict(nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d()).state_dict())
    return [type(m).__name__ for m in (*lazy, *other)], digest(lazy.eval()(torch.ones(2, 3)))


watch(1500, 500)
