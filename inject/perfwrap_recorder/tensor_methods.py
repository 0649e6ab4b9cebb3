"""Watches methods of tensors that are written in C, without anything standing in their place.

``torch.Tensor.item`` stays torch's own object: what stands in the class is a descriptor that gives that very object to
whoever asks the class, and only for a tensor something that calls the recorder around it. So tables of functions,
handlers of ``__torch_function__``, ``inspect``, pickle, Dynamo and C++ all find what they find without perfwrap, and a
method that is called by the class (``torch.Tensor.item(x)``) is not seen. Where spans of its kind are paused, while
``torch.jit`` traces, in the workers of a loader and of tensors that dispatch themselves, a tensor's method is torch's
own, too.

The original is called from a frame that bears file, line and globals of the caller, since C++ warns of the Python line
that runs. From Python 3.11 on no frame of the recorder's is in a traceback.
"""

from __future__ import annotations

from _thread import get_ident
from sys import _getframe
from types import MethodDescriptorType, MethodType

from perfwrap_recorder import journal, rest, source_lines
from perfwrap_recorder.clock import now
from perfwrap_recorder.journal_format import SYNC, TRANSFER
from perfwrap_recorder.plainly import member
from perfwrap_recorder.rest import resting

DISPATCH = "__torch_dispatch__"

MAX_CALLS = 10_000
"""Recorded calls without the end of a step, after which calls pass until one ends: a loop that trains nothing."""

busy = set()  # threads inside of such a call
_put = {}  # name -> what stands in the class
_torch = []
_step = -1  # the step that _calls is of
_calls = 0


class Method:
    """Stands in the class for one method: to all who look at the class itself it is that method."""

    __slots__ = ("bind", "dispatch", "is_tracing", "kind", "method", "name", "tensor", "wrapper")

    def __init__(self, name, method, wrapper, kind, torch):
        self.name, self.method, self.wrapper, self.kind = name, method, wrapper, kind
        self.bind, self.is_tracing = method.__get__, torch._C._is_tracing
        self.tensor, self.dispatch = torch.Tensor, member(torch.Tensor, DISPATCH)

    def __get__(self, tensor, owner=None):
        """Return the method itself to who asks the class, and for a tensor what calls it, watched or not."""
        if tensor is None:
            return self.method
        if self.kind in resting or self.is_tracing():
            return self.bind(tensor)
        # What dispatches itself (Dynamo's fake tensors, say) is its own affair.
        owner = type(tensor)
        if owner is not self.tensor and member(owner, DISPATCH) is not self.dispatch:
            return self.bind(tensor)
        return MethodType(self.wrapper, tensor)

    # Who finds it in the class's dictionary, past __get__, finds what equals the method and passes for one.
    __class__ = property(lambda self: MethodDescriptorType)

    def __eq__(self, other):
        return other is self or other is self.method

    def __hash__(self):
        return hash(self.method)

    def __repr__(self):
        return repr(self.method)

    def __getattr__(self, name):
        return getattr(self.method, name)

    def __call__(self, *arguments, **options):
        """Call the method, for who found this in the class's dictionary."""
        return self.method(*arguments, **options)

    def __reduce__(self):
        return self.method.__reduce__()

    def call(self, tensor, *arguments, **options):
        """Call the method as one of a tensor's, watched."""
        return self.__get__(tensor)(*arguments, **options)


def watch(torch, name, finish, kind, is_called=None, nests=False):
    """Call ``finish(frame, start, end, result, arguments, options)`` after each call of a tensor's method.

    ``arguments`` begin with the tensor. The frame is the caller's, None where there is none in Python; ``finish`` must
    not raise. A call inside of another is a part of it, unless it ``nests``. ``is_called(start, end, result,
    arguments)`` says whether there is anything to finish.
    """
    tensor = torch.Tensor
    method = getattr(tensor, name, None)
    if type(method) is not MethodDescriptorType or name in vars(tensor):
        return
    wrapper = (_make_nesting if nests else _make)(method, finish, is_called)
    wrapper.__name__, wrapper.__qualname__, wrapper.__doc__ = name, method.__qualname__, method.__doc__
    source_lines.skip_code = source_lines.skip_code or _find_skip(torch)
    stand_in = Method(name, method, wrapper, kind, torch)
    _torch[:] = [torch]
    _put[name] = stand_in
    setattr(tensor, name, stand_in)
    journal.after_fork.add(_forget_other_threads)


def _count():
    """Count a recorded call, and let calls pass where there were too many since a step ended."""
    global _step, _calls
    if _step != journal.steps:
        _step, _calls = journal.steps, 0
    _calls += 1
    if _calls > MAX_CALLS and not rest.relieved:
        rest.relieve((SYNC, TRANSFER))
        journal.mark("calls_paused", "more than %d reads and copies of tensors without a step" % MAX_CALLS)


def caller_of(owner, name):
    """Return what calls a watched method for a tensor given to it; None where it is none."""
    stand_in = _put.get(name)
    return stand_in.call if stand_in is not None and vars(owner).get(name) is stand_in else None


def let_go():
    """Leave the class as it was, where nobody has put something else; for processes that have nothing to tell of it."""
    for torch in _torch:
        for name, stand_in in list(_put.items()):
            if vars(torch.Tensor).get(name) is stand_in:
                delattr(torch.Tensor, name)
    _put.clear()


def _make(method, finish, is_called):
    call_from = source_lines.call_from

    def wrapper(*arguments, **options):
        frame, thread = _getframe().f_back, get_ident()
        if thread in busy:
            return call_from(frame, method, arguments, options)
        busy.add(thread)
        try:
            start = now()
            result = call_from(frame, method, arguments, options)
            end = now()
        except BaseException as error:
            source_lines.drop_frames(error)
            raise
        finally:
            busy.discard(thread)
        if is_called is None or is_called(start, end, result, arguments):
            finish(frame, start, end, result, arguments, options)
        _count()
        return result

    return wrapper


def _make_nesting(method, finish, is_called):
    call_from = source_lines.call_from

    def wrapper(*arguments, **options):
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
    """Return Dynamo's function that has a code object left alone; None where this version has none."""
    known = getattr(torch._C._dynamo, "eval_frame", None)
    names = "set_code_exec_strategy", "_FrameExecStrategy", "_FrameAction"
    put, make, action = [getattr(known, name, None) for name in names]
    if put is None:
        return getattr(known, "skip_code", None)
    strategy = make(action.SKIP, action.DEFAULT)
    return lambda code: put(code, strategy)


def _forget_other_threads():
    busy.intersection_update({get_ident()})
