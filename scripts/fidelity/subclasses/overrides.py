"""What torch.overrides and inspect know of torch's functions, and what their places say of themselves."""

import hashlib
import inspect
import types

import torch
from moments import check, watch
from torch import overrides

start = {name: value for name, value in vars(torch.Tensor).items() if callable(value)}
METHODS = (
    "to",
    "cpu",
    "copy_",
    "item",
    "tolist",
    "nonzero",
    "masked_select",
    "numpy",
    "backward",
    "cuda",
    "__bool__",
    "__float__",
    "__int__",
    "__index__",
    "clone",
    "double",
    "pin_memory",
    "unique",
)


@check
def tables():
    """The names of all functions that can be overridden, and how many tests there are for them."""
    getters = overrides.get_testing_overrides.__wrapped__, overrides.get_overridable_functions.__wrapped__
    testing, overridable = (getter() for getter in getters)
    names = sorted(str(overrides.resolve_name(function)) for function in testing)
    listed = sorted(f"{len(functions)}" for functions in overridable.values())
    return len(testing), hashlib.md5(" ".join(names).encode()).hexdigest(), listed


@check
def methods():
    """What each method says of itself."""
    found = []
    for name in METHODS:
        method = getattr(torch.Tensor, name)
        inherited = getattr(torch._C.TensorBase, name, None)
        found.append(
            (
                name,
                type(method).__name__,
                overrides.is_tensor_method_or_property(method),
                method is inherited,
                overrides.resolve_name(method),
                inspect.ismethoddescriptor(method),
                inspect.isfunction(method),
                isinstance(method, types.MethodDescriptorType),
                name in vars(torch.Tensor),
                method in overrides.get_testing_overrides(),
                method.__qualname__,
                repr(method)[:50].split(" at ")[0],
                getattr(method, "__module__", ""),
                method == getattr(torch.ones(1), name).__class__,
            )
        )
    return "\n    ".join(map(str, found))


@check
def same_objects():
    """Which of Tensor's own functions are not those of the beginning, and whether each is its own class's."""
    names = [name for name, value in start.items() if vars(torch.Tensor).get(name) is not value]
    return names, sorted(vars(torch.Tensor)), [name for name in vars(torch.Tensor) if name in METHODS]


@check
def subclass_places():
    """A subclass and a Parameter find what Tensor has."""

    class Own(torch.Tensor):
        """A subclass without anything of its own."""

    return [
        getattr(Own, n) is getattr(torch.nn.Parameter, n) is getattr(torch.Tensor, n) for n in METHODS
    ], Own.__mro__[1:]


watch()
