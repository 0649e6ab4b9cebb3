"""The dispatch mode of one dataflow window: calls each operation, then has ``Watched`` write a row about it.

No result changes: the operation is called first, with the arguments that it got. The mode is on the stack of modes
from the end of one step to the end of another; if its own code fails, it passes everything through until then. On a
GPU, two events around each operation give its duration; they are read when the window has ended.
"""

from __future__ import annotations

import sys

from perfwrap_recorder import guard, static_access
from perfwrap_recorder.clock import now
from perfwrap_recorder.dataflow import handler_keys
from perfwrap_recorder.gpu import devices
from perfwrap_recorder.program import source_lines

FAILED = "dataflow_window"
"""The name under which errors of the handler are recorded."""

COMPILERS = "torch._subclasses."
"""The modules of tensors without values, whose operations are not watched."""

_modes = []  # the class of the mode, once it has been made


def make(torch, watched):
    """Return the mode that writes to ``watched``."""
    if not _modes:
        _modes.append(_make_class(torch))
    mode = _modes[0]()
    mode.watched, mode.note, mode.events = watched, guard.protect(FAILED, watched.note), _find_events()
    mode.restore = handler_keys.make(torch)
    return mode


def push(torch, mode):
    """Put the mode on the stack of modes of this thread."""
    torch._C._push_on_torch_dispatch_stack(mode)  # ``with`` sets variables that are the same for all threads


def is_on_top(torch, mode):
    """Return whether the mode is the innermost one of this thread."""
    count = torch._C._len_torch_dispatch_stack()
    return count > 0 and torch._C._get_dispatch_stack_at(count - 1) is mode


def may_change_stack(torch):
    """Return whether the stack may be changed here.

    Backward restores what it was at its beginning when it ends, and inference mode restores only a part of it: an
    operation then finds no mode though the thread state has one, and raises an error.
    """
    return torch._C._current_graph_task_id() == -1 and not torch.is_inference_mode_enabled()


def pop(torch, mode):
    """Take the mode from the stack, if it may be, and return whether it was."""
    if not (is_on_top(torch, mode) and may_change_stack(torch)):
        return False
    torch._C._pop_torch_dispatch_stack(None)
    return True


def _make_class(torch):
    """Return the class of the mode, whose base comes with torch."""
    plain = {torch.Tensor, torch.nn.Parameter}
    disabled = torch._C._disabled_torch_dispatch_impl

    def has_own_dispatch(kind):
        """Return whether a class has a dispatch of its own; PyTorch also names classes that have none."""
        found = static_access.member(kind, "__torch_dispatch__")
        return getattr(found, "__func__", found) is not disabled

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        supports_higher_order_operators = True
        watched = note = events = restore = None

        @classmethod
        def is_infra_mode(cls):
            """Tell Dynamo to compile frames as without the mode."""
            return True

        @classmethod
        def ignore_compile_internals(cls):
            """Tell Dynamo that operations of compiled code need not be seen."""
            return True

        @classmethod
        def _should_skip_dynamo(cls):
            return False  # the other value would import torch._dynamo

        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            entered, watched, events = now(), self.watched, self.events
            options = options or {}
            if types and not plain.issuperset(types) and any(map(has_own_dispatch, types)):
                if any(static_access.module_of(kind).startswith(COMPILERS) for kind in types):
                    return function(*arguments, **options)
                return NotImplemented  # it is called, and the operations that it makes come here
            try:
                self.restore(function)
                if not watched.is_on:
                    return function(*arguments, **options)
                pair = events and events()
                began = now()
                result = function(*arguments, **options)
                ended = now()
                if pair:
                    pair[1].record()
                    watched.events.append((len(watched.operations), *pair))
                self.note(function, arguments, options, result, (entered, began, ended), sys._getframe(1))
            except BaseException as error:
                _drop_frames(error, function)
                raise
            if FAILED in guard.failed and watched.is_on:
                watched.give_up("perfwrap's own code failed: %s" % guard.failed[FAILED])
            return result

    return Mode


def _drop_frames(error, function):
    """Remove the frames of the handler, and that of torch's Python code by which it calls an operation."""
    source_lines.drop_frames(error)
    trace = error.__traceback__
    call = getattr(type(function).__call__, "__code__", None)
    if trace is not None and trace.tb_frame.f_code is call:
        error.__traceback__ = trace.tb_next


def _find_events():
    """Return a function that records an event and returns it with one for the end; None without a started device."""
    device = devices.current
    if not devices.is_started() or device.make_event is None:
        return None
    make_event = device.make_event

    def events():
        if device.is_capturing():
            return None
        before = make_event(enable_timing=True)
        before.record()
        return before, make_event(enable_timing=True)

    return events
