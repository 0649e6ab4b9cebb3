"""Notices when the program takes the memory of a tensor in a way that no operation shows.

Watches ``numpy tolist data_ptr untyped_storage`` of tensors while a window is open; the first two are recorded anyway.
Instruments ``Tensor.__dlpack__``. ``storage()``, ``__array__`` and ``copy.deepcopy`` call one of them.
"""

from __future__ import annotations

from sys import _getframe

from perfwrap_recorder import guard, journal_format
from perfwrap_recorder.instrumenting import instrument, tensor_methods

METHODS = ("numpy", "tolist", "data_ptr", "untyped_storage")

_torch = []
_listener = None  # function(tensor, name, frame) of the open window
_added = []  # names of methods that are watched for the window only


def prepare(torch):
    """Instrument what stays instrumented."""
    _torch[:] = [torch]
    dlpack = getattr(torch.Tensor, "__dlpack__", None)
    if dlpack is not None:
        tell = guard.protect("unseen_reads", _tell)

        def begin(tensor):
            tell(tensor, "__dlpack__", _getframe(1))

        instrument.instrument(torch, dlpack, begin, _pass, None, ("self",))


def start(listener):
    """Call ``listener(tensor, name, frame)`` at each read from now on."""
    global _listener
    _listener = listener
    tell = guard.protect("unseen_reads", _tell)
    for name in METHODS:
        if not tensor_methods.listen(name, tell):
            _added.append(name)
            tensor_methods.watch(_torch[0], name, _nothing, journal_format.SYNC)
            tensor_methods.listen(name, tell)


def stop():
    """Watch no reads any more."""
    global _listener
    _listener = None
    for name in METHODS:
        tensor_methods.ignore(name)
    while _added:
        tensor_methods.unwatch(_added.pop())


def _nothing(frame, start, end, result, arguments, options):
    """Record nothing of a call: the listener gets it."""


def _pass(state, result):
    """Never called: ``begin`` returns no state."""


def _tell(tensor, name, frame):
    if _listener is not None:
        _listener(tensor, name, frame)
