"""Notices when the program takes the memory of a tensor in a way that no operation shows.

Watches ``numpy tolist data_ptr untyped_storage`` of tensors, of which the first two are recorded anyway, and
instruments ``Tensor.__dlpack__``. ``storage()``, ``__array__`` and ``copy.deepcopy`` call one of them.
"""

from __future__ import annotations

from sys import _getframe

from perfwrap_recorder import guard, journal_format
from perfwrap_recorder.instrumenting import instrument, tensor_methods

METHODS = ("numpy", "tolist", "data_ptr", "untyped_storage")

listener = None
"""function(tensor, name, frame) of the open window; None while there is none."""


def install(torch):
    """Watch them from now on."""
    tell = guard.protect("unseen_reads", _tell)

    def finish_with(name):
        def finish(frame, start, end, result, arguments, options):
            tell(arguments[0], name, frame)

        return finish

    for name in METHODS:
        if not tensor_methods.listen(name, tell):
            tensor_methods.watch(torch, name, finish_with(name), journal_format.SYNC)
    dlpack = getattr(torch.Tensor, "__dlpack__", None)
    if dlpack is not None:

        def begin(tensor):
            tell(tensor, "__dlpack__", _getframe(1))

        instrument.instrument(torch, dlpack, begin, _pass, None, ("self",))


def _pass(state, result):
    """Never called: ``begin`` returns no state."""


def _tell(tensor, name, frame):
    if listener is not None:
        listener(tensor, name, frame)
