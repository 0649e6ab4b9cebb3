"""Times each copy of a tensor to another device or into pinned memory, and finds the line of the call.

Watches ``to cuda cpu copy_ pin_memory`` of tensors, see ``tensor_methods``, and instruments ``to cuda cpu`` of
``torch.nn.Module``.

Each call gives one span: a copy between devices is a TRANSFER, whatever the name of the method. The bits FROM_GPU
without NON_BLOCKING mean that the host waits for the GPU; there is no additional SYNC, which is for values that Python
reads. All tensors that one ``Module.to`` moves are one span. A call that moves nothing is not recorded: the device is
the same, or one of the two is ``meta``, which holds no data. Nothing is copied while a CUDA graph is captured.

Only torch's own getters are called, with ``__torch_function__`` disabled, so no mode and no subclass sees them. A
subclass with its own ``__torch_dispatch__`` is not inspected; the copies that it makes in Python are recorded
separately.
"""

from __future__ import annotations

from _thread import get_ident
from sys import _getframe

from perfwrap_recorder import guard, journal_format, static_access
from perfwrap_recorder.clock import now
from perfwrap_recorder.gpu import devices
from perfwrap_recorder.instrumenting import instrument, making, tensor_methods
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program import source_lines

COPIES = ("to", "cuda", "cpu", "pin_memory")
"""Methods that return the tensor itself if there is nothing to copy."""

MODULE_COPIES = ("to", "cuda", "cpu")

TRANSFER = journal_format.TRANSFER
TO_GPU, FROM_GPU, PINNED, NON_BLOCKING = (
    journal_format.TO_GPU,
    journal_format.FROM_GPU,
    journal_format.PINNED,
    journal_format.NON_BLOCKING,
)

SHORT_NS = 2_000
"""Every copy between devices takes longer than this: launching one on a GPU already does."""

UNKNOWN_BYTES = -1

gathering = {}  # thread in Module.to -> values of what it has moved so far
_latest = {}  # thread -> start of the last transfer written; a call around that transfer is not recorded


def install(torch):
    """Start recording."""
    measure = _measure_with(torch)
    for name in COPIES:
        finish = guard.protect("transfers", _finish_with("Tensor." + name, measure, name == "pin_memory"))
        tensor_methods.watch(torch, name, finish, TRANSFER, _is_copy)
    finish = guard.protect("transfers", _with_source_first(_finish_with("Tensor.copy_", measure, False)))
    tensor_methods.watch(torch, "copy_", finish, TRANSFER, _took_long)
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
        # The surrounding call records it, with the user's line.
        if frame and frame.f_code.co_name == "__torch_function__" or source_lines.is_torch_internal(frame):
            return
        thread = get_ident()
        if _latest.get(thread, 0) >= start:
            return
        value = measure(source, target, is_pinning)
        if value is None:
            return
        making.note_device()
        if is_non_blocking(arguments, options):
            value |= NON_BLOCKING
        moved = gathering.get(thread)
        if moved is not None:
            moved.append(value)
            return
        _latest[thread] = start
        journal.span(start, end - start, value, source_lines.label(name, frame), TRANSFER)

    return finish


def _with_source_first(finish):
    """Return ``finish`` for a method of the target, whose first argument is the source."""

    def finish_into(frame, start, end, target, arguments, options):
        source = arguments[1] if len(arguments) > 1 else options.get("other", options.get("src"))
        finish(frame, start, end, target, (source, *arguments[1:]), options)

    return finish_into


def _finish_module_with(name):
    def finish(frame, start, end, moved):
        journal.span(start, end - start, join_values(moved), source_lines.label(name, frame), TRANSFER)

    return finish


def _measure_with(torch):
    """Return a function that returns the value of a copy's span; None if nothing was moved."""
    device_of, layout_of = torch.Tensor.device.__get__, torch.Tensor.layout.__get__
    numel, element_size, is_pinned = torch.Tensor.numel, torch.Tensor.element_size, torch.Tensor.is_pinned
    no_function, dispatch, strided = (
        torch._C.DisableTorchFunction,
        static_access.member(torch.Tensor, "__torch_dispatch__"),
        torch.strided,
    )
    device_kind = is_capturing = None

    def bind():
        nonlocal device_kind, is_capturing
        device = devices.current
        device_kind, is_capturing = device and device.kind, device and device.is_capturing

    devices.follow(bind)
    count_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
    is_tracing = torch._C._is_tracing

    def is_readable(tensor):
        kind = type(tensor)
        return (
            static_access.is_kind_of(kind, torch.Tensor)
            and static_access.member(kind, "__torch_dispatch__") is dispatch
        )

    def measure(source, target, is_pinning):
        if not is_readable(source) or not is_readable(target):
            return None
        with no_function():
            before, after = device_of(source), device_of(target)
            if is_pinning:
                return find_bytes(target) << 8 | PINNED
            bits = 0 if before == after else find_direction(before.type, after.type)
            if not bits or is_capturing and device_kind in (before.type, after.type) and is_capturing():
                return None
            if bits != TO_GPU | FROM_GPU and holds_pinned(source if bits == TO_GPU else target):
                bits |= PINNED
            return find_bytes(target if bits & TO_GPU else source) << 8 | bits

    def find_bytes(tensor):
        # The size on the GPU's side: torch converts types on the host's side, in both directions.
        if is_tracing():
            return UNKNOWN_BYTES  # reading the size would add it to the traced graph
        try:
            return numel(tensor) * element_size(tensor) if layout_of(tensor) is strided else UNKNOWN_BYTES
        except RuntimeError:  # tensors without a plain storage
            return UNKNOWN_BYTES

    def holds_pinned(tensor):
        if not count_dispatch_modes or count_dispatch_modes():
            return False  # is_pinned is an operation, so a mode of the program would see it
        try:
            return is_pinned(tensor)
        except RuntimeError:  # a device whose backend has no pinned memory; tensors of vmap
            return False

    return measure


def find_direction(before, after):
    """Return the bits of a copy between these types of devices; 0 if none is a GPU.

    Every device except the CPU counts as a GPU (cuda, xpu, mps, hpu, npu...). Both bits: from one GPU to another.
    """
    if "meta" in (before, after):
        return 0
    return (FROM_GPU if before != "cpu" else 0) | (TO_GPU if after != "cpu" else 0)


def is_non_blocking(arguments, options):
    """Return whether a copy is non-blocking: by its option, or by its first argument that is a bool."""
    for argument in arguments:
        if argument is True or argument is False:
            return argument
    return options.get("non_blocking") is True


def join_values(values):
    """Return one value for several: the sum of bytes, all directions, and the bits that all have in common."""
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
