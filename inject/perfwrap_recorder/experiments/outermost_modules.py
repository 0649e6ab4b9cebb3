"""Changes how outermost modules are called, for experiments with models.

Before the first call of each outermost module that has parameters, each change may replace the call by a function of
its own. The result is stored where ``Module.compile`` stores its own, as ``_compiled_call_impl`` in the module's
``__dict__``: nested calls cost nothing, and copies and pickles of the module do not have it. A loss without parameters
is not changed. Modules that a compiled function of the program calls are not seen.
"""

from __future__ import annotations

import sys

from perfwrap_recorder import guard
from perfwrap_recorder.probes.loop import forward
from perfwrap_recorder.program import weak_table

SLOT = "_compiled_call_impl"

_layers = []  # (change, function(module, call, frame)), the innermost first
_firsts = []  # functions(module, frame)
_known = {}  # id of a module -> (weak reference to it,)
MAX_KNOWN = 100_000
"""Modules beyond this number are not changed."""


def add(torch, change, layer):
    """Call ``layer(module, call, frame)`` before the first call of each such module; it returns what is called instead.

    It is called after the layers that were added before, so it wraps them; None does not change the call.
    """
    if not hasattr(torch.nn.Module, SLOT):
        change.refuse("this version of PyTorch is too old for it")
        return
    _layers.append((change, layer))
    _watch()


def add_first(change, function):
    """Call ``function(module, frame)`` before the first call of each such module."""
    _firsts.append(guard.protect(change.key, function))
    _watch()


def _watch():
    if _look not in forward.watchers:
        forward.watchers.append(_look)


def _look(module, frame):
    if weak_table.find(_known, module) is not None or not weak_table.note(_known, module, MAX_KNOWN):
        return
    if next(module.parameters(), None) is None:
        return
    for function in _firsts:
        function(module, frame)
    call = original = vars(module).get(SLOT) or module._call_impl
    for change, layer in _layers:
        call = guard.run(change.key, layer, module, call, frame) or call
    if call is not original:
        module.__dict__[SLOT] = call


def device_of(module):
    """Return the device type of the module's first parameter: cpu, cuda."""
    return next(module.parameters()).device.type


def each_tensor(change_tensor, value, depth=0):
    """Return a value with each tensor in its plain containers replaced by ``change_tensor(tensor)``.

    What holds no changed tensor stays the same object; mappings of other classes are copied shallowly.
    """
    if depth > 4:
        return value
    if type(value) in (list, tuple) or hasattr(value, "_fields"):
        items = [each_tensor(change_tensor, item, depth + 1) for item in value]
        if all(new is old for new, old in zip(items, value)):  # noqa: B905 - Python 3.8
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        changed = {key: each_tensor(change_tensor, item, depth + 1) for key, item in value.items()}
        changed = {key: new for key, new in changed.items() if new is not value[key]}
        return _with_items(value, changed) if changed else value
    return change_tensor(value)


def _with_items(mapping, changed):
    """Return a shallow copy of a mapping with some items replaced; the mapping itself if it cannot be copied."""
    try:
        mapping = sys.modules["copy"].copy(mapping)
        for key, new in changed.items():
            mapping[key] = new
    except (AttributeError, TypeError, ValueError):
        pass  # a class of a library that is made in another way
    return mapping
