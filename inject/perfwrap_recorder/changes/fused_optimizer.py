"""Makes optimizers with ``fused=True``: one kernel for all parameters.

Replaces ``__init__`` of those classes of ``torch.optim`` that can be fused. Refuses if parameters are not of floating
point or on a device for which this PyTorch has no such kernel, if the optimizer is differentiable, for a subclass with
a ``step`` of its own, if it is fused already, and for optimizers that have no fused form. If a loaded checkpoint
switches it off again, the change is reported as refused.
"""

from __future__ import annotations

import sys
from _weakref import ref
from sys import _getframe

from perfwrap_recorder import guard
from perfwrap_recorder.instrumenting import wrapping

OLDEST_DEVICES = ("cuda",)
"""Devices with fused optimizers in versions of PyTorch that have no list of them."""


def install(torch, change):
    """Make optimizers fused."""
    kinds = [kind for kind in vars(torch.optim).values() if isinstance(kind, type)]
    fusible = [kind for kind in kinds if can_be_fused(kind)]
    made = []

    def adjust(kind, optimizer, given, options, frame):
        reason = find_reason(torch, kind, optimizer, given, options)
        if reason:
            change.refuse(reason)
            return None
        before = "fused=%r" % options.get("fused")
        changed = {**options, "fused": True}
        if changed.get("foreach"):
            changed["foreach"] = None
        change.apply(frame, before, "fused=True")
        made.append(ref(optimizer))
        return changed

    def look():
        living = [optimizer for optimizer in (found() for found in made) if optimizer is not None]
        if living and not any(group.get("fused") for one in living for group in one.param_groups):
            change.take_back("a state that was loaded switched it off again")

    for kind in fusible:
        wrapping.patch(torch, kind, "__init__", _maker(torch, change, kind, adjust), over=True)
    watch_others(torch, change, fusible)
    change.checks.append(look)


def can_be_fused(kind):
    """Return whether a class of optimizers takes ``fused`` itself."""
    function = vars(kind).get("__init__")
    code = getattr(wrapping.innermost(function), "__code__", None)
    return code is not None and "fused" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _maker(torch, change, kind, adjust):
    def make(original, _):
        def wrapper(self, *arguments, **options):
            if options.get("fused"):
                guard.run(change.key, change.refuse, "%s is fused already" % type(self).__name__)
                return original(self, *arguments, **options)
            if not arguments and "params" not in options:
                return original(self, *arguments, **options)
            given, rest = (arguments[0], arguments[1:]) if arguments else (options.pop("params"), ())
            if not isinstance(given, torch.Tensor):
                given = list(given)  # as torch does: a generator can be read only once
            found = guard.run(change.key, adjust, kind, self, given, options, _getframe().f_back)
            return original(self, given, *rest, **(found or options))

        return wrapper

    return make


def find_reason(torch, kind, optimizer, given, options):
    """Return why the optimizer cannot be made fused, "" if it can."""
    name = type(optimizer).__name__
    if type(optimizer) is not kind and type(optimizer).step is not kind.step:
        return "%s has a step of its own" % name
    if options.get("differentiable"):
        return "%s is differentiable, which no fused optimizer is" % name
    parameters = tensors_of(given) if isinstance(given, list) else None
    if parameters is None:
        return "%s was given parameters in a form that cannot be looked into" % name
    devices = find_devices(torch)
    for parameter in parameters:
        if not torch.is_floating_point(parameter):
            return "%s has parameters that are not of floating point" % name
        if parameter.device.type not in devices:
            return "this PyTorch has no fused optimizer for %s" % parameter.device.type
    return ""


def tensors_of(given):
    """Return the parameters in a list of them, of pairs with their names, or of groups.

    None where a group holds anything but a list: a generator could be read once only.
    """
    found = []
    for item in given:
        inner = item.get("params") if isinstance(item, dict) else [item]
        inner = inner if isinstance(inner, (list, tuple)) else [inner]
        inner = [one[1] if isinstance(one, tuple) and len(one) == 2 else one for one in inner]
        if not all(hasattr(one, "device") for one in inner):
            return None
        found += inner
    return found


def find_devices(torch):
    """Return the kinds of devices that have fused optimizers."""
    ask = getattr(sys.modules.get("torch.utils._foreach_utils"), "_get_fused_kernels_supported_devices", None)
    return ask() if ask else OLDEST_DEVICES


def watch_others(torch, change, fusible):
    """Refuse for optimizers that have no fused form."""

    def make(original, _):
        def wrapper(self, *arguments, **options):
            if not isinstance(self, tuple(fusible)):
                guard.run(change.key, change.refuse, "%s has no fused form" % type(self).__name__)
            return original(self, *arguments, **options)

        return wrapper

    wrapping.patch(torch, torch.optim.Optimizer, "__init__", make, over=True)
