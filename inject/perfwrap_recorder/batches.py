"""Says how many samples and bytes a batch has, where that can be known without a trace.

No code of the user's runs: only tensors of torch's own class are asked, and only what is built on Python's own
containers is looked into.
"""

from __future__ import annotations

import sys

UNKNOWN = -1

DEEPEST = 3
"""Containers inside of each other that are looked into."""

MOST_PARTS = 64
"""A batch of more tensors than this is not weighed: to ask them all would cost too much."""

WEIGHTLESS = frozenset((bool, bytes, complex, float, int, str, type(None)))
"""What stands beside tensors in a batch and weighs little."""


def count_for(torch):
    """Return a function that says how many samples a batch has, else what was expected."""
    tensor, depth = torch.Tensor, torch._C._len_torch_function_stack

    def count_batch(data, expected):
        for _ in range(2):
            kind = type(data)
            if kind is tensor:
                shape = () if depth() else data.shape
                return shape[0] if shape else expected
            if (kind is list or kind is tuple) and data:
                data = data[0]
            elif kind is dict and data:
                data = next(iter(data.values()))
            else:
                return expected
        return expected

    return count_batch


def weigh_for(torch):
    """Return a function that says how many bytes the tensors of a batch have, -1 where that cannot be known."""
    mode_depth = torch._C._len_torch_function_stack

    def weigh(batch):
        if mode_depth():  # somebody watches what is asked of tensors
            return UNKNOWN
        tensors, is_all = tensors_in(torch, batch)
        return sum(each.numel() * each.element_size() for each in tensors) if is_all and tensors else UNKNOWN

    return weigh


def tensors_in(torch, batch):
    """Return the tensors of a batch, and whether these are all."""
    tensor, parts, tensors, is_all = torch.Tensor, [batch], [], True
    for _ in range(DEEPEST + 1):
        inner = []
        for part in parts:
            kind = type(part)
            if kind is tensor:
                tensors.append(part)
            elif kind not in WEIGHTLESS:
                held = _held_by(part, kind)
                if held is None or len(inner) + len(held) > MOST_PARTS:
                    is_all = False
                else:
                    inner += held
        if not inner:
            return tensors, is_all
        parts = inner
    return tensors, False


def _held_by(part, kind):
    """Return what a container holds, None for anything else; a subclass's own methods are not called."""
    if issubclass(kind, (list, tuple)):
        base = list if issubclass(kind, list) else tuple
        return list(base.__iter__(part)) if base.__len__(part) <= MOST_PARTS else None
    if not issubclass(kind, dict):
        user_dict = getattr(sys.modules.get("collections"), "UserDict", None)
        if user_dict not in kind.__mro__:
            return None
        part = object.__getattribute__(part, "__dict__").get("data")
        if type(part) is not dict:
            return None
    return list(dict.values(part)) if dict.__len__(part) <= MOST_PARTS else None
