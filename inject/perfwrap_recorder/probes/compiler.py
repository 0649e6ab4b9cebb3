"""Keeps Dynamo from compiling the recorder's own functions, and lets it know the methods of tensors.

Replaces ``get_tensor_method`` of ``torch._dynamo.trace_rules``, the set of functions that Dynamo takes for
methods of tensors: what stands in the place of a method is one, and so is the method itself. Without it
``torch.Tensor.to(x)`` and, in a subclass, ``super().to()`` would end a graph. Installed first, since the
other probes make functions of the hidden ones.
"""

from __future__ import annotations

import sys

from perfwrap_recorder import wrapping

RULES = "torch._dynamo.trace_rules"


def install(torch):
    """Hide the functions."""
    wrapping.hide_recorder(torch)
    if RULES in sys.modules:
        teach(sys.modules[RULES])


def teach(rules):
    """Have Dynamo know the methods of tensors again, replaced ones and originals."""
    torch = sys.modules["torch"]
    cached = getattr(rules, "get_tensor_method", None)
    if not hasattr(torch, "nn") or not hasattr(cached, "cache_clear"):
        return  # torch is still being imported (install() comes later), or this version works in another way

    def make(original, _, __):
        known = []  # what the original returned, and that with the replaced methods

        def wrapper():
            found = original()
            if not known or known[0] is not found:
                known[:] = found, found | find_replaced(torch.Tensor)
            return known[1]

        return wrapper

    wrapping.patch(torch, rules, "get_tensor_method", make)
    rules.get_tensor_method.cache_clear = cached.cache_clear


def find_replaced(tensor):
    """Return the wrappers and the originals of those methods that are C++'s."""
    wrappers = [function for function in vars(tensor).values() if wrapping.is_wrapper(function)]
    methods = [function for function in wrappers if hasattr(function.__wrapped__, "__objclass__")]
    return frozenset(methods + [function.__wrapped__ for function in methods])


MODULES = {RULES: teach}
