"""Watches methods of tensors that are written in C, without replacing them.

``torch.Tensor.item`` remains torch's own object. The class gets a descriptor that returns this object when the class is
accessed; only for a tensor it returns a function that calls the recorder around the method. So tables of functions,
handlers of ``__torch_function__``, ``inspect``, pickle, Dynamo and C++ find the same objects as without perfwrap, and
calls through the class (``torch.Tensor.item(x)``) are not recorded. A tensor's method calls only torch's own while
spans of its kind are paused, while this thread makes a batch that is not watched (``making``), while ``torch.jit``
traces, in the workers of a loader, for tensors with their own dispatch, and while a debugger, tracer or profiler of
functions follows this thread.

The original is called from a frame with the file, line and globals of the caller, because warnings from C++ name the
Python line that runs. A debugger would stop at a breakpoint of that line once more, and a profiler would
count a call of the program's function. From Python 3.11 on, tracebacks contain no frame of the recorder.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from sys import _getframe, getprofile, gettrace
from types import MethodDescriptorType, MethodType

from perfwrap_recorder.clock import now
from perfwrap_recorder.instrumenting import making
from perfwrap_recorder.journal import journal, paused_detail
from perfwrap_recorder.journal.paused_detail import paused
from perfwrap_recorder.journal_format import SYNC, TRANSFER
from perfwrap_recorder.program import source_lines
from perfwrap_recorder.static_access import member

DISPATCH = "__torch_dispatch__"

DTYPE = {"dtype"}

MAX_CALLS = 10_000
"""Recorded calls since a step ended; beyond it, recording pauses until a step ends. For loops without training."""

FOLLOWERS = 0, 2
"""The numbers that sys.monitoring has for debuggers and profilers."""
tool_of = sys.monitoring.get_tool if hasattr(sys, "monitoring") else {}.get
"""Returns the name of the tool that uses sys.monitoring under a number; None before Python 3.12."""

busy = set()  # threads in such a call
busy_making, quiet = making.busy, making.quiet
_listeners = {}  # name -> function(tensor, name, frame), see ``listen``
_installed = {}  # name -> its descriptor in the class
_uninstalled = {}  # name -> the descriptor that ``uninstall`` took out
_torch = []
_step = -1  # the step that _calls is of
_calls = 0


class Method:
    """The descriptor of one method: on access through the class it is that method."""

    __slots__ = (
        "bind",
        "count_modes",
        "dispatch",
        "is_sync",
        "is_tracing",
        "kind",
        "method",
        "name",
        "tensor",
        "wrapper",
    )

    def __init__(self, name, method, wrapper, kind, torch):
        self.name, self.method, self.wrapper, self.kind = name, method, wrapper, kind
        self.is_sync = kind == SYNC
        self.bind, self.is_tracing = method.__get__, torch._C._is_tracing
        self.count_modes = torch._C._len_torch_function_stack
        self.tensor, self.dispatch = torch.Tensor, member(torch.Tensor, DISPATCH)

    def __get__(self, tensor, owner=None):
        """Return the method itself for the class; for a tensor, the bound method, watched or not."""
        if tensor is None:
            return self.method
        # First, since a dataset calls these methods several times per sample. Errors about arguments have the text of a
        # call ``tensor.item(...)`` that Python makes without a descriptor.
        if self.kind in paused or quiet and get_ident() in quiet:
            return MethodType(self.method, tensor)
        owner = type(tensor)
        # Reads of a dataset's own samples on the host do not wait.
        if busy_making and self.is_sync and owner is self.tensor and get_ident() in busy_making:
            if not self.count_modes() and tensor.is_cpu:
                return MethodType(self.method, tensor)
        if (
            self.is_tracing()
            or gettrace() is not None
            or getprofile() is not None
            or any(map(tool_of, FOLLOWERS))
        ):
            return MethodType(self.method, tensor)
        # Tensors with their own dispatch, such as Dynamo's fake tensors, are not recorded.
        if owner is not self.tensor and member(owner, DISPATCH) is not self.dispatch:
            return self.bind(tensor)
        return MethodType(self.wrapper, tensor)

    # Code that reads the class's dictionary bypasses __get__: the descriptor equals the method and has its type.
    __class__ = property(lambda self: MethodDescriptorType)

    def __eq__(self, other):
        return other is self or other is self.method

    def __hash__(self):
        return hash(self.method)

    def __repr__(self):
        return repr(self.method)

    def __getattr__(self, name):
        return getattr(self.method, name)

    def __call__(self, /, *arguments, **options):
        """Call the method, for code that found the descriptor in the class's dictionary."""
        return self.method(*arguments, **options)

    def __reduce__(self):
        return self.method.__reduce__()

    def call(self, tensor, *arguments, **options):
        """Call the method of a tensor, watched."""
        return self.__get__(tensor)(*arguments, **options)


def watch(torch, name, finish, kind, is_called=None):
    """Call ``finish(frame, start, end, result, arguments, options)`` after each call of a tensor's method.

    ``arguments`` begin with the tensor. ``frame`` is the caller's, None if the caller is not Python; ``finish`` must
    not raise. A call inside another one is part of it. With ``is_called(start, end, result, arguments)``, which returns
    whether to call ``finish``, inner calls are recorded too.
    """
    tensor = torch.Tensor
    method = getattr(tensor, name, None)
    if type(method) is not MethodDescriptorType or name in vars(tensor):
        return
    wrapper = _make_nesting(torch, method, finish, is_called) if is_called else _make(name, method, finish)
    wrapper.__name__, wrapper.__qualname__, wrapper.__doc__ = name, method.__qualname__, method.__doc__
    source_lines.skip_code = source_lines.skip_code or _find_skip(torch)
    descriptor = Method(name, method, wrapper, kind, torch)
    _torch[:] = [torch]
    _installed[name] = descriptor
    setattr(tensor, name, descriptor)
    journal.after_fork.add(_forget_other_threads)


def listen(name, listener):
    """Call ``listener(tensor, name, frame)`` after each watched call of that method; return whether it is watched."""
    if name in _installed:
        _listeners[name] = listener
    return name in _installed


def ignore(name):
    """Call no listener of that method any more."""
    _listeners.pop(name, None)


def unwatch(name):
    """Restore a method that was watched, unless other code has replaced it."""
    descriptor = _installed.pop(name, None)
    for torch in _torch:
        if descriptor is not None and vars(torch.Tensor).get(name) is descriptor:
            delattr(torch.Tensor, name)


def _count():
    """Count a recorded call, and pause recording after too many since the last step ended."""
    global _step, _calls
    if _step != journal.steps:
        _step, _calls = journal.steps, 0
    _calls += 1
    if _calls > MAX_CALLS and not paused_detail.throttled:
        paused_detail.throttle((SYNC, TRANSFER))
        journal.mark("calls_paused", "more than %d reads and copies of tensors without a step" % MAX_CALLS)


def caller_of(owner, name):
    """Return a function that calls the watched method of a given tensor; None if the method is not watched."""
    descriptor = _installed.get(name)
    return descriptor.call if descriptor is not None and vars(owner).get(name) is descriptor else None


def uninstall():
    """Restore the class, except attributes that other code replaced; for processes in which nothing is recorded."""
    _uninstalled.update(_installed)
    for name in list(_installed):
        unwatch(name)


def reinstall():
    """Undo ``uninstall``."""
    for torch in _torch:
        for name, descriptor in _uninstalled.items():
            if name not in vars(torch.Tensor):
                _installed[name] = descriptor
                setattr(torch.Tensor, name, descriptor)
    _uninstalled.clear()


def _make(name, method, finish):
    call_from, listeners = source_lines.call_from, _listeners

    def wrapper(*arguments, **options):
        frame, thread = _getframe().f_back, get_ident()
        is_inner = thread in busy
        busy.add(thread)
        try:
            start = now()
            result = call_from(frame, method, arguments, options)
            end = now()
        except BaseException as error:
            source_lines.drop_frames(error)
            raise
        finally:
            if not is_inner:
                busy.discard(thread)
        listener = listeners.get(name)
        if listener:
            listener(arguments[0], name, frame)
        if not is_inner:
            finish(frame, start, end, result, arguments, options)
            _count()
        return result

    return wrapper


def _make_nesting(torch, method, finish, is_called):
    call_from = source_lines.call_from
    tensor, dtype = torch.Tensor, torch.dtype
    count_modes, warns_always = torch._C._len_torch_function_stack, torch._C._get_warnAlways

    def wrapper(*arguments, **options):
        # A conversion of the type alone moves nothing; of C++ warnings there is only that about complex numbers.
        if (
            (options.keys() == DTYPE if len(arguments) == 1 else len(arguments) == 2 and not options)
            and (options or type(arguments[1]) is dtype)
            and type(arguments[0]) is tensor
            and not (count_modes() or warns_always())
            and arguments[0].is_cpu
            and not arguments[0].dtype.is_complex
        ):
            try:
                return method(*arguments, **options)
            except BaseException as error:
                source_lines.drop_frames(error)
                raise
        frame = _getframe().f_back
        try:
            start = now()
            result = call_from(frame, method, arguments, options)
            end = now()
        except BaseException as error:
            source_lines.drop_frames(error)
            raise
        if is_called(start, end, result, arguments):
            finish(frame, start, end, result, arguments, options)
        _count()
        return result

    return wrapper


def _find_skip(torch):
    """Return Dynamo's function that excludes a code object from compilation; None if this version has none."""
    known = getattr(torch._C._dynamo, "eval_frame", None)
    names = "set_code_exec_strategy", "_FrameExecStrategy", "_FrameAction"
    put, make, action = [getattr(known, name, None) for name in names]
    if put is None:
        return getattr(known, "skip_code", None)
    strategy = make(action.SKIP, action.DEFAULT)
    return lambda code: put(code, strategy)


def _forget_other_threads():
    busy.intersection_update({get_ident()})
