"""The one gate to the program's tensors: through it they are asked where nobody notices, and elsewhere not at all.

Questions are functions, called by ``look`` (for what tensors have: size, type, device, gradient) or ``calculate`` (for
what takes operations). Subclasses and modes with a ``__torch_function__`` see nothing of them. Where anybody else would
(a tracer, a mode, a transform, a profiler), nothing is asked and LATER is returned: who asked does so again at a later
call, as if it had not. No other file switches ``__torch_function__`` off, but that which times copies, which asks
nothing that is recorded: a question outside of this gate is seen by a mode, and so by a test.
"""

from __future__ import annotations

from perfwrap_recorder import plainly

FIRST = 64
"""So many numbers, spread over a tensor, stand for all."""
ALONE = 32_767
"""Operations on up to so many numbers start no threads: a child that is forked later could not use those."""

QUIET_KEYS = ("BackendSelect", "ADInplaceOrView")
"""What torch's dispatcher goes through for every thread; for whom it goes through more we cannot know."""


class Later:
    """Says that nothing was asked."""

    __slots__ = ()


LATER = Later()

_watchers = []  # functions() that tell whether somebody watches, once torch is there


def look(torch, question, *arguments):
    """Return what a question says about what tensors have; LATER where somebody would see it."""
    if is_watched(torch):
        return LATER
    with torch._C.DisableTorchFunction():
        return question(*arguments)


def calculate(torch, question, *arguments):
    """Return what a question says that takes operations; LATER where somebody would see those."""
    if is_watched(torch) or torch.autograd._profiler_enabled():
        return LATER
    # The gradient mode is set inside: modes of the program's would see that, too.
    with torch._C.DisableTorchFunction(), Unrecorded(torch), torch.no_grad():
        return question(*arguments)


def is_watched(torch):
    """Say whether a mode, a tracer or a transform of the program's would see what tensors are asked for."""
    for ask in _watchers or _find_watchers(torch):
        if ask():
            return True
    return False


class Unrecorded:
    """Operations inside are not told to those who observe them, torch's ``ExecutionTraceObserver`` for one."""

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
        usual = sum([core.DispatchKeySet(getattr(core.DispatchKey, name)).raw_repr() for name in QUIET_KEYS])
        found.append(lambda: keys().raw_repr() & ~usual)
    _watchers[:] = found
    return found


def is_plain(torch, tensor):
    """Say whether a tensor is of torch's own class, so that its attributes are torch's."""
    kind = type(tensor)
    return kind is torch.Tensor or kind is torch.nn.Parameter


def is_silent(torch, tensor):
    """Say whether torch alone answers what a tensor is asked by ``value``: its class dispatches nothing itself."""
    kind = type(tensor)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return True
    if not plainly.is_kind_of(kind, torch.Tensor):
        return False
    name = "__torch_dispatch__"
    if plainly.member(kind, name) is plainly.members_of(torch.Tensor)[name]:
        return True
    return plainly.name_of(kind) == "DTensor" and plainly.module_of(kind).startswith("torch.distributed.")


def value(torch, tensor, name):
    """Return an attribute of a tensor, or what a method without arguments returns, whatever its class puts there."""
    found = getattr(torch.Tensor, name)
    return found(tensor) if callable(found) else found.__get__(tensor)


def item(torch, tensor):
    """Return the number of a tensor on the CPU; ``Tensor.item`` is watched, and this is no read of the program's."""
    return (getattr(torch._C, "TensorBase", None) or torch._C._TensorBase).item(tensor)  # before torch 2.2


def fingerprint(torch, tensor):
    """Return what changes when a tensor is written to as a whole, through ``.data``, too, where it is on the CPU.

    On a GPU the host would have to wait for its numbers, so there only how often it was written to counts. To be
    called by ``calculate``.
    """
    is_readable = tensor.layout is torch.strided and tensor.is_floating_point()
    if not is_readable or tensor.device.type != "cpu":
        return tensor._version
    count = tensor.numel()
    some = tensor.detach().as_strided((min(FIRST, count),), (max(1, count // FIRST),))
    return tensor._version, item(torch, some.double().sum())
