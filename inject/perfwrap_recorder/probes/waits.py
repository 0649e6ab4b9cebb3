"""Times each call that waits for a GPU and brings nothing back.

Instruments ``synchronize`` of ``torch.cuda``, ``torch.accelerator``, ``torch.xpu`` and ``torch.mps``, and that of the
classes ``Stream`` and ``Event`` of ``torch.cuda`` and ``torch.xpu``.

Not seen: ``torch.Stream`` and ``torch.Event``, types of C++ that nobody can change.
"""

from __future__ import annotations

from perfwrap_recorder import journal, journal_format, source_lines, timing

ON_GPU = 1

OWNERS = ("cuda", "accelerator", "xpu", "mps")
CLASSES = (("cuda", "Stream"), ("cuda", "Event"), ("xpu", "Stream"), ("xpu", "Event"))


def install(torch):
    """Watch from now on."""
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
        if not source_lines.is_own_business(frame):
            journal.span(start, duration, ON_GPU, source_lines.label(name, frame), journal_format.SYNC)

    timing.time_calls(torch, function, "waits", finish, kind=journal_format.SYNC)
