"""Times each call that reads a tensor's value on the host, and finds the line of the call.

Watches these methods of tensors, see ``tensor_methods``: ``item tolist numpy nonzero equal allclose is_nonzero
masked_select __bool__ __float__ __int__ __complex__ __index__``, and instruments ``Tensor.__repr__`` and
``Tensor.__format__``. transfers.py records copies (``cpu``, ``to``), blocking or not.

Not recorded: values that C++ reads itself (``x[mask]``), torch's functions of the same names (``torch.nonzero(x)``),
and methods called through the class (``torch.Tensor.item(x)``). Dynamo, ``torch.jit`` and ``__torch_function__``
identify these by their identity. docs/what-is-seen.md has the list.

Reads of CPU tensors by a dataset, while a batch is made, belong to the batch and are not recorded here. While a dataset
that uses no GPU makes its batches, the methods are rarely watched at all: see ``instrumenting/making.py``.

A nested call (``item`` in ``__format__``) is part of the outer call. Reads by torch's own optimizers, loaders and
scalers are not recorded. Finding the line costs time, so it is done only after a long call, for the first calls of a
step, and for every eighth of the other calls.
"""

from __future__ import annotations

from _thread import get_ident
from sys import _getframe

from perfwrap_recorder import guard, journal_format
from perfwrap_recorder.clock import now
from perfwrap_recorder.gpu import devices, gpu_events
from perfwrap_recorder.instrumenting import instrument, making, tensor_methods
from perfwrap_recorder.instrumenting.tensor_methods import busy
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program import source_lines

METHODS = (
    *("item", "tolist", "numpy", "nonzero", "equal", "allclose", "is_nonzero", "masked_select"),
    *("__bool__", "__float__", "__int__", "__complex__", "__index__"),
)
TEXTS = ("__repr__", "__format__")

SYNC = journal_format.SYNC

LONG_NS = 20_000
"""The line of every call longer than this is found."""

LINES_PER_STEP = 8
"""The line is found for this many calls of a step, however short they are."""

SAMPLE_MASK = 7
"""Of the other calls, the line is found for those whose number has none of these bits."""

_step = -1  # the step that _lines_left is for
_lines_left = 0
_calls = 0


def install(torch):
    """Start recording."""
    for name in METHODS:
        finish = guard.protect("sync", _finish_with(torch, "Tensor." + name))
        tensor_methods.watch(torch, name, finish, SYNC)
    for name in TEXTS:
        finish = guard.protect("sync", _finish_with(torch, "Tensor." + name))
        begin, end, fail = _around(finish)
        instrument.instrument(torch, getattr(torch.Tensor, name), begin, end, fail, ("self",), kind=SYNC)
    journal.cover("probe/sync")


def _around(finish):
    """Return begin, end and fail for a method that is written in Python."""

    def begin(tensor):
        thread = get_ident()
        if thread in busy:
            return None
        busy.add(thread)
        return now(), tensor

    def end(state, result):
        busy.discard(get_ident())
        finish(_getframe(1).f_back, state[0], now(), None, (state[1],), {})

    def fail(state, error):
        busy.discard(get_ident())

    return begin, end, fail


def _finish_with(torch, name):
    text_id = journal.text(name)
    on_gpu = reach_gpu = None

    def bind():
        nonlocal on_gpu, reach_gpu
        on_gpu, reach_gpu = _on_gpu_for(torch), gpu_events.reach

    devices.follow(bind)

    def finish(frame, start, end, result, arguments, options):
        global _step, _lines_left, _calls
        if source_lines.is_torch_internal(frame):
            return
        tensor, duration = arguments[0], end - start
        if _step != journal.steps:
            _step, _lines_left = journal.steps, LINES_PER_STEP
        _lines_left -= 1
        _calls += 1
        is_located = _lines_left >= 0 or duration > LONG_NS or not _calls & SAMPLE_MASK
        number = source_lines.label(name, frame) if is_located else text_id
        is_on_gpu = on_gpu(tensor) if on_gpu else 0
        journal.span(start, duration, is_on_gpu, number, journal_format.SYNC)
        if is_on_gpu:
            making.note_device()
            if reach_gpu:
                reach_gpu(end, tensor.get_device())
        # Infinity minus itself is NaN, and NaN differs from everything.
        if type(result) is float and result - result != 0.0:
            number = source_lines.label(name, frame)
            journal.instant(end, result, number, journal_format.NON_FINITE)

    return finish


def _on_gpu_for(torch):
    """Return a function that returns 1 for a tensor on a GPU; None if there is no device."""
    if devices.current is None:
        return None

    def on_gpu(tensor):
        return 1 if _is_plain(torch, tensor) and not tensor.is_cpu else 0

    return on_gpu


def _is_plain(torch, tensor):
    """Return whether reading an attribute of the tensor runs only torch's code."""
    kind = type(tensor)
    return (kind is torch.Tensor or kind is torch.nn.Parameter) and not torch._C._len_torch_function_stack()
