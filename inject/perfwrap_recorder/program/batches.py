"""Returns the number of samples and bytes of a batch, if it can be found without being observed.

No code of the user runs: only tensors of torch's own class are read, and only containers based on Python's own.
"""

from __future__ import annotations

import sys

from perfwrap_recorder import static_access
from perfwrap_recorder.program import tensor_access

UNKNOWN = -1

MAX_DEPTH = 3
"""Maximum nesting of containers."""

MAX_PARTS = 64
"""Batches with more tensors are not measured: that would cost too much."""

WEIGHTLESS = frozenset(map(id, (bool, bytes, complex, float, int, str, type(None))))
"""Types that may be in a batch and use little memory; ids, since classes may define a hash."""


def count_for(torch):
    """Return a function that returns the number of samples of a batch, or else the expected number."""
    tensor, look = torch.Tensor, tensor_access.look

    def count_batch(data, expected):
        for _ in range(2):
            kind = type(data)
            if kind is tensor:
                size = look(torch, first_size, data)
                return expected if size is None or size is tensor_access.LATER else size
            if (kind is list or kind is tuple) and data:
                data = data[0]
            elif kind is dict and data:
                data = next(iter(data.values()))
            else:
                return expected
        return expected

    return count_batch


def weigh_for(torch):
    """Return a function that returns the bytes of the tensors of a batch, -1 if unknown."""

    def weigh(batch):
        tensors, is_all = tensors_in(torch, batch)
        found = tensor_access.look(torch, bytes_of, tensors) if is_all and tensors else tensor_access.LATER
        return UNKNOWN if found is tensor_access.LATER else found

    return weigh


def first_size(tensor):
    """Return the number of rows of a tensor, None for a scalar; for ``tensor_access.look``."""
    # Not by its shape, which nested tensors do not have.
    return tensor.size(0) if tensor.dim() else None


def bytes_of(tensors):
    """Return the bytes of tensors; for ``tensor_access.look``."""
    return sum([each.numel() * each.element_size() for each in tensors])


def tensors_in(torch, batch):
    """Return the tensors of a batch, and whether these are all."""
    tensor, parts, tensors, is_all = torch.Tensor, [batch], [], True
    for _ in range(MAX_DEPTH + 1):
        inner = []
        for part in parts:
            kind = type(part)
            if kind is tensor:
                tensors.append(part)
            elif id(kind) not in WEIGHTLESS:
                held = _held_by(part, kind)
                if held is None or len(inner) + len(held) > MAX_PARTS:
                    is_all = False
                else:
                    inner += held
        if not inner:
            return tensors, is_all
        parts = inner
    return tensors, False


def _held_by(part, kind):
    """Return the items of a container, None for anything else; methods of subclasses are not called."""
    is_kind_of = static_access.is_kind_of
    if is_kind_of(kind, list, tuple):
        base = list if is_kind_of(kind, list) else tuple
        return list(base.__iter__(part)) if base.__len__(part) <= MAX_PARTS else None
    if not is_kind_of(kind, dict):
        user_dict = getattr(sys.modules.get("collections"), "UserDict", None)
        if user_dict is None or not any(each is user_dict for each in static_access.mro_of(kind)):
            return None
        part = static_access.own(part).get("data")
        if type(part) is not dict:
            return None
    return list(dict.values(part)) if dict.__len__(part) <= MAX_PARTS else None
