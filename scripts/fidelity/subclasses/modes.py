"""Modes that see every function: their names, whether they are the same objects each time, and what dispatch sees."""

import torch
from moments import check, digest, watch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode

first = {}


class Names(TorchFunctionMode):
    """Notes each function's name, and whether it is the object of that name that was seen first."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Note the function."""
        name = resolve_name(func)
        was = first.setdefault(name, (func, id(func)))
        made_anew = name and name.endswith("__get__")  # Getters are made when they are asked for.
        same = made_anew or was == (func, id(func))
        self.seen.append(f"{name or getattr(func, '__qualname__', func)}{'' if same else ' ANOTHER'}")
        return func(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    """Notes each operator and the classes of its arguments."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Note the operator."""
        self.seen.append(f"{func}({', '.join(type(a).__name__ for a in args)})")
        return func(*args, **(kwargs or {}))


def work():
    """A step of training with moves and synchronising calls in it."""
    model = torch.nn.Sequential(torch.nn.Embedding(5, 4), torch.nn.Flatten(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    loss = model(torch.tensor([[0, 1], [2, 3]]).to("cpu")).to(torch.float64).sum()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    target = torch.zeros(3)
    target.copy_(torch.ones(3), non_blocking=True)
    assert target.sum().item() == 3 and target.tolist() and target.nonzero().numel() and bool(target[0])
    return [digest(p) for p in model.parameters()]


@check
def functions():
    """The functions of a step, in order."""
    with Names() as mode:
        answer = work()
    return "\n    ".join(mode.seen + answer)


@check
def operators():
    """The operators of a step, in order."""
    with Operators() as mode:
        answer = work()
    return "\n    ".join(mode.seen + answer)


@check
def defaults():
    """With a default device, which is a mode, too."""
    with torch.device("cpu"):
        return work()


watch(counted=False)
