"""Keeps Dynamo from compiling the recorder's own functions, and lets it know the methods of tensors.

Replaces functions of Dynamo's by which it knows the methods of tensors: what stands in the place of a method is one,
and so is the method itself. Without it ``torch.Tensor.to(x)`` and, in a subclass, ``super().to()`` would end a graph
or fail. Installed first, since the other probes make functions of the hidden ones.

- ``trace_rules.get_tensor_method``, the set of those methods, from torch 2.2 on.
- ``check_verbose``, from torch 2.2 to 2.7: says what is not to be traced into. There ``super().to()`` ends a graph,
  and it does so with ours in its place.
"""

from __future__ import annotations

import sys

from perfwrap_recorder import wrapping

RULES, SKIPS = "torch._dynamo.trace_rules", "torch._dynamo.skipfiles"

SKIPPED = "a method of tensors"
"""Why the functions that stand for methods are not traced into."""


def install(torch):
    """Hide the functions."""
    wrapping.hide_recorder(torch)
    for name, function in MODULES.items():
        if name in sys.modules:
            function(sys.modules[name])


def teach_methods(rules):
    """Have Dynamo know the methods of tensors again, replaced ones and originals."""
    torch = _torch()
    cached = getattr(rules, "get_tensor_method", None)
    if torch is None or not hasattr(cached, "cache_clear"):
        return  # this version works in another way

    def make(original, _, __):
        known = []  # what the original returned, and that with the replaced methods

        def wrapper():
            found = original()
            if not known or known[0] is not found:
                wrappers, originals = find_replaced(torch.Tensor)
                known[:] = found, found | wrappers | originals
            return known[1]

        return wrapper

    wrapping.patch(torch, rules, "get_tensor_method", make)
    rules.get_tensor_method.cache_clear = cached.cache_clear
    teach_skips(rules)


def teach_skips(rules):
    """Have Dynamo not trace into what stands for a method, as it could not into the method."""
    torch, result = _torch(), getattr(rules, "SkipResult", None)
    if torch is None or result is None or not wrapping.KNOWS_METHODS <= wrapping.version_of(torch) < (2, 8):
        return

    def make(original, _, __):
        def wrapper(function, *arguments, **options):
            if getattr(function, "fn", None) in find_replaced(torch.Tensor)[0]:
                return result(True, SKIPPED)
            return original(function, *arguments, **options)

        return wrapper

    wrapping.patch(torch, rules, "check_verbose", make)


def find_replaced(tensor):
    """Return the wrappers of those methods that are C++'s, and the originals."""
    wrappers = [function for function in vars(tensor).values() if wrapping.is_wrapper(function)]
    found = {function: wrapping.innermost(function) for function in wrappers}
    found = {function: original for function, original in found.items() if hasattr(original, "__objclass__")}
    return frozenset(found), frozenset(found.values())


def _torch():
    """Return torch once it has been imported; ``install`` comes at the end of that."""
    torch = sys.modules["torch"]
    return torch if hasattr(torch, "nn") else None


MODULES = {RULES: teach_methods, SKIPS: teach_skips}
