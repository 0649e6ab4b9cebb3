"""Changes how outermost modules are called, for those experiments that are about models.

Before the first call of each outermost module that has parameters, each change may put a function of its own in the
place of the call. The result stands where ``Module.compile`` puts its own, ``_compiled_call_impl`` in the module's
``__dict__``: nested calls cost nothing, and copies and pickles of the module are without it. A loss without parameters
is left alone. What a compiled function of the program's calls is not seen.
"""

from __future__ import annotations

import sys

from perfwrap_recorder import guard, living
from perfwrap_recorder.probes import forward

SLOT = "_compiled_call_impl"

_layers = []  # (change, function(module, call, frame)), the innermost first
_firsts = []  # functions(module, frame)
_known = {}  # id of a module -> (weak reference to it,)
MAXIMUM_KNOWN = 100_000
"""Living modules beyond these stay as they are."""


def add(torch, change, layer):
    """Call ``layer(module, call, frame)`` before the first call of each such module; it returns what is called instead.

    It is called after the layers that were added before, hence around them; None leaves the call as it is.
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
    if living.find(_known, module) is not None or not living.note(_known, module, MAXIMUM_KNOWN):
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
    """Return the kind of device that the module's first parameter is on: cpu, cuda."""
    return next(module.parameters()).device.type


def each_tensor(change_tensor, value, depth=0):
    """Return a value with each tensor in its plain containers replaced by ``change_tensor(tensor)``.

    Whatever has no tensor that changes stays the very same object; mappings of other classes are copied shallowly.
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
    """Return a shallow copy of a mapping with some items replaced; the mapping itself where it cannot be copied."""
    try:
        mapping = sys.modules["copy"].copy(mapping)
        for key, new in changed.items():
            mapping[key] = new
    except (AttributeError, TypeError, ValueError):
        pass  # a class of a library's that wants to be made in another way
    return mapping
