"""Times ``torch.autograd.grad``: gradients that the program uses itself (meta-learning, gradient penalties, forces).

It ends no step and accumulates nothing, so it is no backward pass of the training, though it takes as long as one.
"""

from __future__ import annotations

from _thread import get_ident

from perfwrap_recorder import journal_format
from perfwrap_recorder.instrumenting import timing
from perfwrap_recorder.journal import journal
from perfwrap_recorder.probes.loop.compilation import compiling
from perfwrap_recorder.program.source_lines import label

GRADIENT = journal_format.GRADIENT


def install(torch):
    """Start recording."""
    timing.time_calls(torch, torch.autograd.grad, "gradients", _finish, kind=GRADIENT, phase="backward")
    journal.cover("probe/gradients")


def _finish(frame, start, duration, values):
    if get_ident() not in compiling:  # torch.compile traces a backward pass with it
        journal.span(start, duration, 0, label("grad", frame), GRADIENT)
