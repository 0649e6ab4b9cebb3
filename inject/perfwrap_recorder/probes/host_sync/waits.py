"""Times each call that only waits for a GPU.

Instruments ``synchronize`` of ``torch.accelerator`` and of the modules of devices (``torch.cuda``, ``torch.npu``), and
that of their classes ``Stream`` and ``Event``: of torch's own devices at once, of another when it is found.

Not seen: ``torch.Stream`` and ``torch.Event``, C++ types that cannot be changed.
"""

from __future__ import annotations

from _thread import get_ident

from perfwrap_recorder import journal_format
from perfwrap_recorder.gpu import devices
from perfwrap_recorder.instrumenting import timing
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program import source_lines

ON_GPU = 1

OWNERS = ("cuda", "accelerator", "xpu", "mps")
"""Those that torch itself has."""


def install(torch):
    """Start recording."""
    for name in OWNERS:
        _watch_module(torch, name)
    devices.follow(lambda: devices.current and _watch_module(torch, devices.current.kind))
    journal.cover("probe/waits")


def _watch_module(torch, kind):
    module = getattr(torch, kind, None)
    owners = [(module, "torch." + kind)]
    owners += [(getattr(module, name, None), "torch.%s.%s" % (kind, name)) for name in ("Stream", "Event")]
    for owner, name in owners:
        if "synchronize" in getattr(owner, "__dict__", ()):
            _watch(torch, owner.synchronize, name + ".synchronize")


def _watch(torch, function, name):
    def finish(frame, start, duration, _):
        if not source_lines.is_torch_internal(frame) and get_ident() not in devices.waiting:
            journal.span(start, duration, ON_GPU, source_lines.label(name, frame), journal_format.SYNC)

    timing.time_calls(torch, function, "waits", finish, kind=journal_format.SYNC)
