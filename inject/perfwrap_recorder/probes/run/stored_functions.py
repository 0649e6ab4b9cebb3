"""Gives torch's functions their own code while a program stores functions by value. Records nothing.

dill with ``recurse=True`` and cloudpickle after ``register_pickle_by_value`` can store the code of torch's functions
with all that it calls. With the recorder's calls in it, only a process that perfwrap records could read the result.
Instruments the ``dump`` of both picklers. What other threads call meanwhile is not recorded.
"""

from __future__ import annotations

import sys

from perfwrap_recorder import guard
from perfwrap_recorder.instrumenting import instrument
from perfwrap_recorder.journal import journal
from perfwrap_recorder.static_access import own

DILL, CLOUDPICKLE = "dill._dill", "cloudpickle.cloudpickle"

_torch = []  # the module, once it is imported
_storing = set()  # one object for each call of ``dump`` that is running


def install(torch):
    """Watch the picklers that were imported before torch, or by it."""
    _torch[:] = [torch]
    for name, watch in MODULES.items():
        if name in sys.modules:
            watch(sys.modules[name])


def _watch_dill(module):
    _watch(module, lambda pickler: own(pickler).get("_recurse"))


def _watch_cloudpickle(module):
    registered = getattr(module, "_PICKLE_BY_VALUE_MODULES", ())
    _watch(module, lambda pickler: registered)


MODULES = {DILL: _watch_dill, CLOUDPICKLE: _watch_cloudpickle}


def _watch(module, stores_by_value):
    if not _torch:
        return

    def begin(pickler):
        if not stores_by_value(pickler) or journal.is_detached:
            return None
        call = object()
        _storing.add(call)
        instrument.uninstall()
        return call

    def end(call, result=None):
        _storing.discard(call)
        if not _storing and not journal.is_detached:
            instrument.reinstall()

    begin, end = (guard.protect("stored_functions", each) for each in (begin, end))
    dump = module.Pickler.dump
    instrument.instrument(_torch[0], dump, begin, end, end, ("self",))
