"""Makes ``.item()`` and similar calls return a value that was read before, so that the host never waits for the GPU.

Replaces ``Tensor.item``, ``__float__``, ``__int__`` and ``__bool__``, around the probe, for tensors on a GPU. The
first call at each place of the program is a real one. From then on each call starts an asynchronous copy,
and returns the value of the last finished copy of that place: usually that of the step before. Reads by torch's own
optimizers and scalers are real. Refuses on the CPU, where such a read does not wait.
"""

from __future__ import annotations

from sys import _getframe

from perfwrap_recorder import guard
from perfwrap_recorder.instrumenting import wrapping
from perfwrap_recorder.program.source_lines import is_torch_internal

NAMES = ("item", "__float__", "__int__", "__bool__")

MAX_PLACES = 1000


class Place:
    """One place of the program that reads values; ``begin_copy(tensor)`` returns is_done() and the copy."""

    def __init__(self, code, begin_copy):
        self.code = code  # kept alive: another one could get its id
        self.begin_copy = begin_copy
        self.known = None
        self.under_way = None

    def ask(self, tensor, read):
        """Return ``read`` of the newest finished copy, and start the next one."""
        if self.known is None:
            answer = read(tensor)
            self.known = answer, None
            return answer
        if self.under_way is not None:
            is_done, copy = self.under_way
            if not is_done():
                return self.known[0]
            self.known = read(copy), copy
        self.under_way = self.begin_copy(tensor)
        return self.known[0]


def install(torch, change):
    """Return old values from now on."""
    if not change.needs_gpu(torch):
        return
    places = {}

    def begin_copy(tensor):
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        with torch.cuda.device(tensor.device), torch.no_grad():
            copy.copy_(tensor, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        return event.query, copy

    def ask(name, read, tensor, frame):
        key = name, id(frame.f_code), frame.f_lasti
        place = places.get(key)
        if place is None:
            if len(places) >= MAX_PLACES:
                return None
            place = places[key] = Place(frame.f_code, begin_copy)
        elif place.known is not None:
            change.apply(frame, "Tensor.%s of this step" % name, "of an earlier one")
        return (place.ask(tensor, read),)

    def is_meant(tensor, frame):
        kind = type(tensor)
        is_plain = (
            kind is torch.Tensor or kind is torch.nn.Parameter
        ) and not torch._C._len_torch_function_stack()
        return is_plain and tensor.is_cuda and tensor.numel() == 1 and not is_torch_internal(frame)

    for name in NAMES:
        wrapping.patch(torch, torch.Tensor, name, _maker(change, name, is_meant, ask), over=True)


def _maker(change, name, is_meant, ask):
    def make(original, is_compiling):
        def wrapper(self):
            if is_compiling():
                return original(self)
            frame = _getframe().f_back
            if not guard.run(change.key, is_meant, self, frame):
                return original(self)
            found = guard.run(change.key, ask, name, original, self, frame)
            return found[0] if found else original(self)

        return wrapper

    return make
