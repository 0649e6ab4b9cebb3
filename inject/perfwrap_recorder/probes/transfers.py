"""Times each copy of a tensor to another device or into pinned memory, and finds the line that asked for it.

Watches ``to cuda cpu copy_ pin_memory`` of tensors, see ``tensor_methods``, and instruments ``to cuda cpu`` of
``torch.nn.Module``.

One call, one span: a copy between devices is a TRANSFER whatever its name. That one from a GPU also makes the
host wait is told by its bits (FROM_GPU without NON_BLOCKING), not by a SYNC on top of it; a SYNC gives Python
a value. All tensors that one ``Module.to`` moves are one span. A call that moves nothing (the device is the
same, or one of both is ``meta``, which holds no data) leaves nothing. While a CUDA graph is captured nothing
is copied.

Asked are only torch's own getters, and with ``__torch_function__`` off: neither a mode nor a subclass sees
it. A subclass that has a ``__torch_dispatch__`` of its own is asked nothing: what it holds is its own affair,
and the copies that it makes in Python are seen by themselves.
"""

from __future__ import annotations

from _thread import get_ident
from sys import _getframe

from perfwrap_recorder import (
    guard,
    instrument,
    journal,
    journal_format,
    plainly,
    source_lines,
    tensor_methods,
)
from perfwrap_recorder.clock import now

COPIES = ("to", "cuda", "cpu", "pin_memory")
"""Those that return the tensor itself where there is nothing to do."""

MODULE_COPIES = ("to", "cuda", "cpu")

TRANSFER = journal_format.TRANSFER
TO_GPU, FROM_GPU, PINNED, NON_BLOCKING = (
    journal_format.TO_GPU,
    journal_format.FROM_GPU,
    journal_format.PINNED,
    journal_format.NON_BLOCKING,
)

SHORT_NS = 2_000
"""No copy between devices is as short as this: to launch one on a GPU takes longer."""

UNKNOWN_BYTES = -1

gathering = {}  # thread inside of Module.to -> values of what it has moved so far
_latest = {}  # thread -> start of the last transfer written: a call around it has nothing to add


def install(torch):
    """Watch from now on."""
    measure = _measure_with(torch)
    for name in COPIES:
        finish = guard.protect("transfers", _finish_with("Tensor." + name, measure, name == "pin_memory"))
        tensor_methods.watch(torch, name, finish, TRANSFER, _is_copy, nests=True)
    finish = guard.protect("transfers", _turned(_finish_with("Tensor.copy_", measure, False)))
    tensor_methods.watch(torch, "copy_", finish, TRANSFER, _took_long, nests=True)
    for name in MODULE_COPIES:
        begin, end, fail = _around(guard.protect("transfers", _finish_module_with("Module." + name)))
        function = getattr(torch.nn.Module, name)
        instrument.instrument(torch, function, begin, end, fail, phase="Module." + name)
    journal.after_fork.add(_forget_threads)
    journal.cover("probe/transfers")


def _took_long(start, end, result, arguments):
    return end - start > SHORT_NS


def _is_copy(start, end, result, arguments):
    return end - start > SHORT_NS and result is not arguments[0]


def _around(finish):
    def begin():
        thread = get_ident()
        if thread in gathering:
            return None
        moved = gathering[thread] = []
        return now(), moved

    def end(state, result):
        ended = now()
        gathering.pop(get_ident(), None)
        if state[1]:
            finish(_getframe(1).f_back, state[0], ended, state[1])

    def fail(state, error):
        gathering.pop(get_ident(), None)

    return begin, end, fail


def _finish_with(name, measure, is_pinning):
    def finish(frame, start, end, target, arguments, options):
        source, arguments = arguments[0], arguments[1:]
        # The call around it records it, with the line that matters.
        if frame and frame.f_code.co_name == "__torch_function__" or source_lines.is_own_business(frame):
            return
        thread = get_ident()
        if _latest.get(thread, 0) >= start:
            return
        value = measure(source, target, is_pinning)
        if value is None:
            return
        if is_non_blocking(arguments, options):
            value |= NON_BLOCKING
        moved = gathering.get(thread)
        if moved is not None:
            moved.append(value)
            return
        _latest[thread] = start
        journal.span(start, end - start, value, source_lines.label(name, frame), TRANSFER)

    return finish


def _turned(finish):
    """Return the function for a method of the target: the source is its first argument."""

    def finish_into(frame, start, end, target, arguments, options):
        source = arguments[1] if len(arguments) > 1 else options.get("other", options.get("src"))
        finish(frame, start, end, target, (source, *arguments[1:]), options)

    return finish_into


def _finish_module_with(name):
    def finish(frame, start, end, moved):
        journal.span(start, end - start, join_values(moved), source_lines.label(name, frame), TRANSFER)

    return finish


def _measure_with(torch):
    """Return a function that says what a copy moved, as the value of its span; None when it moved nothing."""
    device_of, layout_of = torch.Tensor.device.__get__, torch.Tensor.layout.__get__
    numel, element_size, is_pinned = torch.Tensor.numel, torch.Tensor.element_size, torch.Tensor.is_pinned
    no_function, dispatch, strided = (
        torch._C.DisableTorchFunction,
        plainly.member(torch.Tensor, "__torch_dispatch__"),
        torch.strided,
    )
    is_capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)
    count_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
    is_tracing = torch._C._is_tracing

    def is_readable(tensor):
        kind = type(tensor)
        return (
            plainly.is_kind_of(kind, torch.Tensor) and plainly.member(kind, "__torch_dispatch__") is dispatch
        )

    def measure(source, target, is_pinning):
        if not is_readable(source) or not is_readable(target):
            return None
        with no_function():
            before, after = device_of(source), device_of(target)
            if is_pinning:
                return find_bytes(target) << 8 | PINNED
            bits = 0 if before == after else find_direction(before.type, after.type)
            if not bits or is_capturing and "cuda" in (before.type, after.type) and is_capturing():
                return None
            if bits != TO_GPU | FROM_GPU and holds_pinned(source if bits == TO_GPU else target):
                bits |= PINNED
            return find_bytes(target if bits & TO_GPU else source) << 8 | bits

    def find_bytes(tensor):
        # Of the side on the GPU: torch converts types on the host's side of the copy, whichever way it goes.
        if is_tracing():
            return UNKNOWN_BYTES  # a size that is asked for becomes part of the traced graph
        try:
            return numel(tensor) * element_size(tensor) if layout_of(tensor) is strided else UNKNOWN_BYTES
        except RuntimeError:  # tensors without a plain storage
            return UNKNOWN_BYTES

    def holds_pinned(tensor):
        if not count_dispatch_modes or count_dispatch_modes():
            return False  # the question is an operation that a mode of the program's would see
        try:
            return is_pinned(tensor)
        except RuntimeError:  # a device whose backend knows of no pinned memory; tensors of vmap
            return False

    return measure


def find_direction(before, after):
    """Return the bits of a copy between these types of devices; 0 when no GPU takes part.

    Every device but the CPU counts as a GPU (cuda, xpu, mps, hpu, npu...). Both bits: from one to another.
    """
    if "meta" in (before, after):
        return 0
    return (FROM_GPU if before != "cpu" else 0) | (TO_GPU if after != "cpu" else 0)


def is_non_blocking(arguments, options):
    """Say whether a copy was asked not to block: by name, or by the first of its arguments that is a bool."""
    for argument in arguments:
        if argument is True or argument is False:
            return argument
    return options.get("non_blocking") is True


def join_values(values):
    """Return the value that stands for several: the sum of bytes, any direction, and what holds for all."""
    whole, directions, common = 0, 0, PINNED | NON_BLOCKING
    for value in values:
        size = value >> 8
        whole = UNKNOWN_BYTES if size < 0 or whole < 0 else whole + size
        directions |= value & (TO_GPU | FROM_GPU)
        common &= value
    return whole << 8 | directions | common


def _forget_threads():
    gathering.clear()
    _latest.clear()
