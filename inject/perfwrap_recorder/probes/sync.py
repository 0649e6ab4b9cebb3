"""Times each call by which a tensor's value comes to the host, and finds the line that asked for it.

Replaces, on ``torch.Tensor``: ``item tolist numpy nonzero equal allclose is_nonzero masked_select __bool__
__float__ __int__ __complex__ __index__ __repr__ __format__``. The user could notice one more frame in
tracebacks, and that some of these are Python functions. Copies (``cpu``, ``to``) are transfers.py's, whether
they block or not. While ``torch.jit`` traces, nothing is recorded: its warnings name the line that runs, which
must be the caller's.

Not seen are the values that C++ asks for itself (``x[mask]``) and torch's functions of the same names
(``torch.nonzero(x)``): Dynamo, ``torch.jit`` and ``__torch_function__`` know those by their identity, so a
replaced ``torch.nonzero`` is another function in a graph. docs/what-is-seen.md has the list.

A call inside of another one (``item`` in ``__format__``) is part of it. What torch's own optimizers, loaders
and scalers read is their business: it is not recorded, nor blamed on the user. The line is looked up where it
matters or costs little: after a long call, for the first calls of a step, and for every eighth of the others.
"""

from __future__ import annotations

from _thread import get_ident
from sys import _getframe

from perfwrap_recorder import gpu_time, guard, journal, journal_format, source_lines, wrapping
from perfwrap_recorder.clock import now
from perfwrap_recorder.rest import resting

PLAIN = ("item", "tolist", "__bool__", "__index__")
CONVERSIONS = ("__float__", "__int__", "__complex__")
"""Those that warn, once per process, when the tensor requires a gradient."""
WITH_OPTIONS = (
    *("numpy", "nonzero", "equal", "allclose", "is_nonzero", "masked_select"),
    *("__repr__", "__format__"),
)

SYNC = journal_format.SYNC

LONG_NS = 20_000
"""A call as long as this always gets its line."""

LINES_PER_STEP = 8
"""So many calls of a step get their line whatever they take."""

SAMPLE_MASK = 7
"""Of the others, those get it whose number has none of these bits."""

busy = set()  # threads inside of such a call
_step = -1  # the step that _lines_left is for
_lines_left = 0
_calls = 0


def install(torch):
    """Watch from now on."""
    makers = ((PLAIN, _make_plain), (CONVERSIONS, _make_conversion), (WITH_OPTIONS, _make_with_options))
    on_gpu = _on_gpu_for(torch)
    for names, make in makers:
        for name in names:
            finish = guard.protect("sync", _finish_with("Tensor." + name, on_gpu))
            wrapping.patch(torch, torch.Tensor, name, make(finish, torch), kind=SYNC)
    journal.after_fork.add(_forget_other_threads)
    journal.cover("probe/sync")


def _make_plain(finish, torch):
    is_tracing = torch._C._is_tracing

    def make(original, _, is_compiling):
        def wrapper(self):
            if is_compiling():
                return original(self)
            if is_tracing():
                return source_lines.call_from(_getframe().f_back, original, self)
            if SYNC in resting:
                return original(self)
            thread = get_ident()
            if thread in busy:
                return original(self)
            busy.add(thread)
            try:
                start = now()
                result = original(self)
                duration = now() - start
            finally:
                busy.discard(thread)
            finish(_getframe().f_back, self, start, duration, result)
            return result

        return wrapper

    return make


def _make_with_options(finish, torch):
    is_tracing = torch._C._is_tracing

    def make(original, _, is_compiling):
        def wrapper(self, *arguments, **options):
            if is_compiling():
                return original(self, *arguments, **options)
            if is_tracing():
                return source_lines.call_from(_getframe().f_back, original, self, *arguments, **options)
            if SYNC in resting:
                return original(self, *arguments, **options)
            thread = get_ident()
            if thread in busy:
                return original(self, *arguments, **options)
            busy.add(thread)
            try:
                start = now()
                result = original(self, *arguments, **options)
                duration = now() - start
            finally:
                busy.discard(thread)
            finish(_getframe().f_back, self, start, duration, None)
            return result

        return wrapper

    return make


def _make_conversion(finish, torch):
    is_tracing, is_grad_enabled = torch._C._is_tracing, torch.is_grad_enabled

    def make(original, _, is_compiling):
        # The one warning comes from C++ and names the Python line that runs: it must be the caller's.
        unwarned = [True]

        def convert(tensor, frame):
            if frame and unwarned and is_grad_enabled() and _is_plain(torch, tensor) and tensor.requires_grad:
                unwarned.clear()
                return source_lines.call_from(frame, original, tensor)
            return original(tensor)

        def wrapper(self):
            if is_compiling():
                return original(self)
            if is_tracing():
                return source_lines.call_from(_getframe().f_back, original, self)
            if SYNC in resting:
                return convert(self, _getframe().f_back) if unwarned else original(self)
            thread = get_ident()
            if thread in busy:
                return convert(self, _getframe().f_back) if unwarned else original(self)
            busy.add(thread)
            try:
                start = now()
                result = convert(self, _getframe().f_back) if unwarned else original(self)
                duration = now() - start
            finally:
                busy.discard(thread)
            finish(_getframe().f_back, self, start, duration, result)
            return result

        return wrapper

    return make


def _finish_with(name, on_gpu):
    text_id = journal.text(name)
    reach_gpu = gpu_time.reach

    def finish(frame, tensor, start, duration, result):
        global _step, _lines_left, _calls
        if source_lines.is_own_business(frame):
            return
        if _step != journal.steps:
            _step, _lines_left = journal.steps, LINES_PER_STEP
        _lines_left -= 1
        _calls += 1
        is_located = _lines_left >= 0 or duration > LONG_NS or not _calls & SAMPLE_MASK
        number = source_lines.label(name, frame) if is_located else text_id
        is_on_gpu = on_gpu(tensor) if on_gpu else 0
        journal.span(start, duration, is_on_gpu, number, journal_format.SYNC)
        if is_on_gpu and reach_gpu:
            reach_gpu(start + duration, tensor.get_device())
        # Infinity minus itself is NaN, and NaN differs from everything.
        if result.__class__ is float and result - result != 0.0:
            number = source_lines.label(name, frame)
            journal.instant(start + duration, result, number, journal_format.NON_FINITE)

    return finish


def _on_gpu_for(torch):
    """Return a function that says 1 for a tensor on a GPU, None where torch knows of none."""
    if not any(getattr(torch.version, build, None) for build in ("cuda", "hip", "xpu")):
        return None

    def on_gpu(tensor):
        return 1 if _is_plain(torch, tensor) and not tensor.is_cpu else 0

    return on_gpu


def _is_plain(torch, tensor):
    """Say whether nobody but torch sees that an attribute of the tensor is read."""
    kind = type(tensor)
    return (kind is torch.Tensor or kind is torch.nn.Parameter) and not torch._C._len_torch_function_stack()


def _forget_other_threads():
    busy.intersection_update({get_ident()})
