"""The only way to read the program's tensors: without being observed, or not at all.

A question is a function, called by ``look`` (for attributes: size, type, device, gradient) or ``calculate`` (for what
takes operations). Subclasses and modes with a ``__torch_function__`` do not see it. If anything else would (a tracer,
a mode, a transform, a profiler), nothing is read and LATER is returned: the caller tries again at a later call. No
other file switches ``__torch_function__`` off, except transfers.py, which asks nothing that is recorded: a question
outside of this file is seen by a mode, and so by a test.
"""

from __future__ import annotations

import threading
from _thread import _count, get_ident

from perfwrap_recorder import static_access

FIRST = 64
"""Number of elements, spread over a tensor, that represent it."""
ALONE = 32_767
"""Operations on at most this many elements start no threads, which a child of a later fork could not use."""

USUAL_KEYS = ("BackendSelect", "ADInplaceOrView")
"""Dispatch keys that are included in every thread; any other one is an observer."""


class Later:
    """The result if nothing was read."""

    __slots__ = ()


LATER = Later()

threads = threading._active  # the main thread, and those that Python lists
trainers = set()  # threads that have begun a backward pass, in detail or beside another thread of that list
_watchers = []  # functions() that return whether something observes, once torch is imported


def look(torch, question, *arguments):
    """Return the answer to a question about attributes of tensors; LATER if it would be observed."""
    if is_watched(torch):
        return LATER
    with torch._C.DisableTorchFunction():
        return question(*arguments)


def calculate(torch, question, *arguments):
    """Return the answer to a question that takes operations; LATER if they would be observed."""
    if is_watched(torch) or torch.autograd._profiler_enabled():
        return LATER
    # The gradient mode is set inside: the program's modes would see that, too.
    with torch._C.DisableTorchFunction(), Unrecorded(torch):
        # Not torch.no_grad(): after a graph break Dynamo would compile its methods as functions of the program.
        enabled = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            return question(*arguments)
        finally:
            torch._C._set_grad_enabled(enabled)


def are_gradients_free():
    """Return whether gradients may be read: if no other thread trains.

    A backward pass of another thread writes gradients without Python's lock: reading one meanwhile can crash. Passes
    of threads that Python does not list may not have been noted.
    """
    return trainers == {get_ident()} and _count() < len(threads)


def note_trainer():
    """Note that this thread begins a backward pass."""
    trainers.add(get_ident())


def is_watched(torch):
    """Return whether a mode, a tracer or a transform of the program would observe a question."""
    for ask in _watchers or _find_watchers(torch):
        if ask():
            return True
    return False


class Unrecorded:
    """Operations inside are not reported to observers such as torch's ``ExecutionTraceObserver``."""

    __slots__ = ("_switch",)

    def __init__(self, torch):
        self._switch = getattr(torch.autograd, "_enable_record_function", bool)

    def __enter__(self):
        self._switch(False)

    def __exit__(self, *_):
        self._switch(True)


def _find_watchers(torch):
    core = torch._C
    found = [core._is_tracing]
    if hasattr(core, "_len_torch_dispatch_stack"):
        found.append(core._len_torch_dispatch_stack)
    transforms = getattr(getattr(core, "_functorch", None), "peek_interpreter_stack", None)
    if transforms:
        found.append(lambda: transforms() is not None)
    keys = core._dispatch_tls_local_include_set
    if hasattr(keys(), "raw_repr"):  # from torch 2.1 on
        usual = sum([core.DispatchKeySet(getattr(core.DispatchKey, name)).raw_repr() for name in USUAL_KEYS])
        found.append(lambda: keys().raw_repr() & ~usual)
    _watchers[:] = found
    return found


def is_plain(torch, tensor):
    """Return whether a tensor is of torch's own class, so that its attributes are torch's."""
    kind = type(tensor)
    return kind is torch.Tensor or kind is torch.nn.Parameter


def is_silent(torch, tensor):
    """Return whether torch alone answers ``value`` for a tensor: its class does not dispatch itself."""
    kind = type(tensor)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return True
    if not static_access.is_kind_of(kind, torch.Tensor):
        return False
    name = "__torch_dispatch__"
    if static_access.member(kind, name) is static_access.members_of(torch.Tensor)[name]:
        return True
    return static_access.name_of(kind) == "DTensor" and static_access.module_of(kind).startswith(
        "torch.distributed."
    )


def value(torch, tensor, name):
    """Return torch's attribute of a tensor, or the result of torch's method, even if its class overrides it."""
    found = getattr(torch.Tensor, name)
    return found(tensor) if callable(found) else found.__get__(tensor)


def item(torch, tensor):
    """Return the number of a tensor on the CPU; not by ``Tensor.item``, whose calls are recorded."""
    return (getattr(torch._C, "TensorBase", None) or torch._C._TensorBase).item(tensor)  # before torch 2.2


def fingerprint(torch, tensor):
    """Return a value that changes when a tensor is written as a whole, on the CPU also through ``.data``.

    On a GPU the host would wait for its elements, so there only the version counter is used. For ``calculate``.
    """
    is_readable = tensor.layout is torch.strided and tensor.is_floating_point()
    if not is_readable or tensor.device.type != "cpu":
        return tensor._version
    count = tensor.numel()
    some = tensor.detach().as_strided((min(FIRST, count),), (max(1, count // FIRST),))
    return tensor._version, item(torch, some.double().sum())
