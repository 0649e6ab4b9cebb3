"""Times the clearing of gradients.

Replaces ``Optimizer.zero_grad`` and ``Module.zero_grad``. The user could notice one more frame in a
traceback.
"""

from __future__ import annotations

from perfwrap_recorder import journal, wrapping
from perfwrap_recorder.source_lines import label


def install(torch):
    """Watch from now on."""
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        finish = _finish_with(owner.__name__ + ".zero_grad")
        make = wrapping.timed("zero_grad", finish, journal.ZERO_GRAD)
        wrapping.patch(torch, owner, "zero_grad", make, "zero_grad")
    journal.cover("probe/zero_grad")


def _finish_with(name):
    def finish(frame, start, duration, _):
        journal.span(start, duration, 0, label(name, frame), journal.ZERO_GRAD)

    return finish
