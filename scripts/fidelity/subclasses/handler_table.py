"""Handlers by function object, as PyTorch's documentation shows, registered before, while and after steps are made."""

import functools
import sys

import torch
from moments import check, digest, train, watch

NAMES = (
    "to",
    "cpu",
    "copy_",
    "item",
    "tolist",
    "nonzero",
    "masked_select",
    "numpy",
    "__bool__",
    "backward",
    "float",
    "__float__",
    "__int__",
    "half",
    "cuda",
    "clone",
    "is_nonzero",
    "unique",
    "equal",
    "__len__",
)
FUNCTIONS = (
    torch.nonzero,
    torch.masked_select,
    torch.unique,
    torch.equal,
    torch.stack,
    torch.sum,
    torch.is_nonzero,
    torch.nn.functional.linear,
    torch.nn.functional.mse_loss,
    torch.nn.functional.embedding,
)
tables = {}


def register():
    """Return a table with a handler for each function, by what stands at its place now."""
    table = {getattr(torch.Tensor, name): f"Tensor.{name}" for name in NAMES}
    return {**table, **{function: function.__name__ for function in FUNCTIONS}}


class Handled(torch.Tensor):
    """Asks each table for the function that it is handed."""

    calls = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        """Note which table knows the function."""
        for name, table in tables.items():
            cls.calls.append(f"{name}:{table.get(func, '-')}")
        return super().__torch_function__(func, types, args, kwargs or {})


@check
def handled():
    """Which functions the tables knew, for calls of methods and of functions."""
    Handled.calls.clear()
    tensor = torch.arange(4.0).as_subclass(Handled)
    answers = [
        tensor.to(torch.float64),
        tensor.cpu(),
        tensor.clone().copy_(tensor),
        tensor.nonzero(),
        tensor.masked_select(torch.tensor([True, False, True, True])),
        torch.nonzero(tensor),
        torch.unique(tensor),
        torch.nn.functional.mse_loss(tensor, tensor + 1),
        torch.stack([tensor, tensor]),
        tensor.half(),
    ]
    small = torch.ones(1).as_subclass(Handled)
    plain = [
        small.item(),
        small.tolist(),
        bool(small),
        float(small),
        int(small),
        small.numpy().sum(),
        len(small),
    ]
    torch.ones(1, requires_grad=True).as_subclass(Handled).sum().backward()
    own = [digest(a) for a in answers]
    return " ".join([*own, *map(str, plain), *Handled.calls])


@check
def partials():
    """Functions that were remembered are those that stand there."""
    return [
        functools.partial(old).func is getattr(torch.Tensor, name)
        for name, old in zip(NAMES, remembered, strict=True)
    ]


remembered = [getattr(torch.Tensor, name) for name in NAMES]
tables["before"] = register()
if "late" in sys.argv:  # Another table, made when many steps are done, maybe in a pause.
    print(train(2000, lambda step: tables.update({f"at {step}": register()}), 700))
watch()
