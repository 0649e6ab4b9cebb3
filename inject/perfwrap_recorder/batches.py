"""Says how many samples and bytes a batch has, where that can be known without a trace.

No code of the user's runs: only tensors of torch's own class are asked, and only what is built on Python's own
containers is looked into.
"""

from __future__ import annotations

import sys

from perfwrap_recorder import plainly, quiet

UNKNOWN = -1

DEEPEST = 3
"""Containers inside of each other that are looked into."""

MOST_PARTS = 64
"""A batch of more tensors than this is not weighed: to ask them all would cost too much."""

WEIGHTLESS = frozenset(map(id, (bool, bytes, complex, float, int, str, type(None))))
"""What stands beside tensors in a batch and weighs little; ids, since classes may have a hash of their own."""


def count_for(torch):
    """Return a function that says how many samples a batch has, else what was expected."""
    tensor, look = torch.Tensor, quiet.look

    def count_batch(data, expected):
        for _ in range(2):
            kind = type(data)
            if kind is tensor:
                size = look(torch, first_size, data)
                return expected if size is None or size is quiet.LATER else size
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

    def weigh(batch):
        tensors, is_all = tensors_in(torch, batch)
        found = quiet.look(torch, bytes_of, tensors) if is_all and tensors else quiet.LATER
        return UNKNOWN if found is quiet.LATER else found

    return weigh


def first_size(tensor):
    """Return how many rows a tensor has, None for a number; to be called by ``quiet.look``."""
    # Not by its shape, which nested tensors have not.
    return tensor.size(0) if tensor.dim() else None


def bytes_of(tensors):
    """Return how many bytes tensors have; to be called by ``quiet.look``."""
    return sum([each.numel() * each.element_size() for each in tensors])


def tensors_in(torch, batch):
    """Return the tensors of a batch, and whether these are all."""
    tensor, parts, tensors, is_all = torch.Tensor, [batch], [], True
    for _ in range(DEEPEST + 1):
        inner = []
        for part in parts:
            kind = type(part)
            if kind is tensor:
                tensors.append(part)
            elif id(kind) not in WEIGHTLESS:
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
    is_kind_of = plainly.is_kind_of
    if is_kind_of(kind, list, tuple):
        base = list if is_kind_of(kind, list) else tuple
        return list(base.__iter__(part)) if base.__len__(part) <= MOST_PARTS else None
    if not is_kind_of(kind, dict):
        user_dict = getattr(sys.modules.get("collections"), "UserDict", None)
        if user_dict is None or not any(each is user_dict for each in plainly.mro_of(kind)):
            return None
        part = plainly.own(part).get("data")
        if type(part) is not dict:
            return None
    return list(dict.values(part)) if dict.__len__(part) <= MOST_PARTS else None
