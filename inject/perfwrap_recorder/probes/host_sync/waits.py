"""Times each call that only waits for a GPU.

Instruments ``synchronize`` of ``torch.cuda``, ``torch.accelerator``, ``torch.xpu`` and ``torch.mps``, and that of the
classes ``Stream`` and ``Event`` of ``torch.cuda`` and ``torch.xpu``.

Not seen: ``torch.Stream`` and ``torch.Event``, C++ types that cannot be changed.
"""

from __future__ import annotations

from perfwrap_recorder import journal_format
from perfwrap_recorder.instrumenting import timing
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program import source_lines

ON_GPU = 1

OWNERS = ("cuda", "accelerator", "xpu", "mps")
CLASSES = (("cuda", "Stream"), ("cuda", "Event"), ("xpu", "Stream"), ("xpu", "Event"))


def install(torch):
    """Start recording."""
    owners = [(getattr(torch, module, None), "torch." + module) for module in OWNERS]
    for module, name in CLASSES:
        owner = getattr(getattr(torch, module, None), name, None)
        owners.append((owner, "torch.%s.%s" % (module, name)))
    for owner, name in owners:
        if "synchronize" in vars(owner or object):
            _watch(torch, owner.synchronize, name + ".synchronize")
    journal.cover("probe/waits")


def _watch(torch, function, name):
    def finish(frame, start, duration, _):
        if not source_lines.is_torch_internal(frame):
            journal.span(start, duration, ON_GPU, source_lines.label(name, frame), journal_format.SYNC)

    timing.time_calls(torch, function, "waits", finish, kind=journal_format.SYNC)
