"""Lets an operation that a mode's handler calls dispatch what it does inside as it does without the mode.

While a handler runs, PyTorch excludes every dispatch key above that of modes. An operation that is made of others, on
the level below autograd, would then compute other values: conjugated and negated views are read as if they were not
(``linalg.pinv`` of complex numbers), autocast is off in the program's own operations, and their gradients are lost if
they have no formula of their own.
"""

from __future__ import annotations

VIEWS = ("Conjugate", "Negative", "ZeroTensor")
TRACED = ("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor", "ADInplaceOrView")
AUTOCAST = (
    *("AutocastCPU", "AutocastCUDA", "AutocastXPU", "AutocastMPS", "AutocastHPU", "AutocastPrivateUse1"),
)
FORMULAS = ("Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")
INSIDE = frozenset(("aten::_transformer_encoder_layer_fwd", "aten::_native_multi_head_attention"))
"""PyTorch's own operations whose parts are autocast."""

NEEDED = (
    *("_RestorePythonTLSSnapshot", "_dispatch_has_kernel_for_dispatch_key", "DispatchKey"),
    *("_dispatch_tls_set_dispatch_key_excluded", "_dispatch_tls_is_dispatch_key_excluded"),
)
"""What is needed of ``torch._C``."""


def make(torch):
    """Return ``restore(function)``, which is called in the handler before the operation."""
    core = torch._C
    exclude, is_excluded = (
        core._dispatch_tls_set_dispatch_key_excluded,
        core._dispatch_tls_is_dispatch_key_excluded,
    )
    views, traced, autocast = (
        [getattr(core.DispatchKey, name) for name in names if hasattr(core.DispatchKey, name)]
        for names in (VIEWS, TRACED, AUTOCAST)
    )
    conjugate, negative, zero = views
    known = {}  # operation -> (whether its parts are traced, whether they are autocast); None if it is left alone
    nothing = False, False

    def restore(function):
        found = known.get(function, known)
        if found is known:
            found = known[function] = _learn(torch, function)
        if found is None:
            return
        exclude(conjugate, False)
        exclude(negative, False)
        exclude(zero, False)
        if found == nothing:
            return
        if found[1]:
            with core._RestorePythonTLSSnapshot():
                on = [key for key in autocast if not is_excluded(key)]
            for key in on:
                exclude(key, False)
        if found[0]:
            for key in traced:
                exclude(key, False)

    return restore


def _learn(torch, function):
    """Return whether the parts of an operation are traced by autograd, and whether they are autocast."""
    schema = getattr(function, "_schema", None)
    if schema is None or not hasattr(function, "_op"):
        return None  # a higher-order operator dispatches for itself
    name = schema.name + ("." + schema.overload_name if schema.overload_name else "")
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if schema.name.startswith(("aten::", "prims::", "prim::")):
        return False, schema.name in INSIDE
    is_traced = not any(has(name, key) for key in FORMULAS)
    return is_traced, not any(has(name, key) for key in AUTOCAST if hasattr(torch._C.DispatchKey, key))
