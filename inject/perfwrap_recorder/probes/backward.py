"""Times each backward pass.

Replaces ``torch.autograd.backward``, which ``Tensor.backward`` calls too; not ``torch.autograd.grad``, whose
replacing would change what Dynamo captures. The user could notice one more frame in a traceback.
"""

from __future__ import annotations

from sys import _getframe

from perfwrap_recorder import journal, wrapping
from perfwrap_recorder.source_lines import label


def install(torch):
    """Watch from now on."""
    wrapping.patch(torch, torch.autograd, "backward", wrapping.timed(_finish), "backward")
    journal.cover("probe/backward")


def _finish(start, duration, _):
    journal.span(start, duration, 0, label("backward", _getframe(2)), journal.BACKWARD)
