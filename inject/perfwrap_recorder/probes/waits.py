"""Times each call that waits for a GPU and brings nothing back.

Replaces ``synchronize`` of ``torch.cuda.Stream`` and ``torch.cuda.Event`` (and their kin of ``torch.xpu``),
and beneath ``torch.cuda.synchronize``, ``torch.accelerator.synchronize``, ``torch.xpu.synchronize`` and
``torch.mps.synchronize`` the function of ``torch._C`` that each calls: Dynamo knows the public ones by their
identity. The user could notice one more frame in a traceback.

Not seen: ``torch.Stream`` and ``torch.Event``, types of C++ that nobody can change.
"""

from __future__ import annotations

from perfwrap_recorder import journal, journal_format, source_lines, wrapping

ON_GPU = 1

FUNCTIONS = (
    ("_cuda_synchronize", "torch.cuda.synchronize"),
    ("_accelerator_synchronizeDevice", "torch.accelerator.synchronize"),
    ("_xpu_synchronize", "torch.xpu.synchronize"),
    ("_mps_deviceSynchronize", "torch.mps.synchronize"),
)
"""Function of ``torch._C`` -> what programs call."""

CLASSES = (("cuda", "Stream"), ("cuda", "Event"), ("xpu", "Stream"), ("xpu", "Event"))


def install(torch):
    """Watch from now on."""
    for name, public_name in FUNCTIONS:
        wrapping.patch(torch, torch._C, name, _make(public_name))
    for module, name in CLASSES:
        owner = getattr(getattr(torch, module, None), name, None)
        if "synchronize" in vars(owner or object):
            wrapping.patch(torch, owner, "synchronize", _make("torch.%s.%s.synchronize" % (module, name)))
    journal.cover("probe/waits")


def _make(name):
    def finish(frame, start, duration, _):
        if not source_lines.is_own_business(frame):
            journal.span(start, duration, ON_GPU, source_lines.label(name, frame), journal_format.SYNC)

    return wrapping.timed("waits", finish, journal_format.SYNC)
