"""Times the recomputations of activation checkpointing (``torch.utils.checkpoint``): the second forward passes.

They run in the backward pass, on the thread that computes it. The line is the one that called the checkpoint, in the
first forward pass.

Instruments ``forward`` and ``backward`` of ``CheckpointFunction``, the reentrant way. For the other way, since PyTorch
2.1: ``__init__`` of ``_CheckpointFrame`` and of ``_recomputation_hook``, with which a recomputation begins, and
``check_recomputed_tensors_match``, which follows it. torch ends most of those by an exception, so no function
that contains one returns. Not seen: checkpoints of other libraries, and those in compiled regions.
"""

from __future__ import annotations

import sys
from sys import _getframe

from perfwrap_recorder import guard, journal_format, on_import
from perfwrap_recorder.clock import now
from perfwrap_recorder.instrumenting import instrument, timing
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program import weak_table
from perfwrap_recorder.program.source_lines import label

RECOMPUTE = journal_format.RECOMPUTE
NAME = "checkpoint"
CHECKPOINTS = "torch.utils.checkpoint"

MAX_PENDING = 10_000
"""Checkpoints that wait for their backward pass; of more the line is unknown, or they are not recorded."""

pending = {}  # id of a checkpoint's frame or context -> (reference, [text id of its label, start of its recomputation])


def install(torch):
    """Start recording. Some versions (2.3) import their checkpoints only when the program does."""
    if CHECKPOINTS in sys.modules:
        _watch(torch, sys.modules[CHECKPOINTS])
    journal.cover("probe/recomputation")


def _when_imported(module):
    if on_import.imported("torch"):
        _watch(sys.modules["torch"], module)


MODULES = {CHECKPOINTS: _when_imported}


def _watch(torch, module):
    function = module.CheckpointFunction
    _call_before(torch, function.forward, _note, ("ctx",))
    timing.time_calls(
        torch,
        function.backward,
        *("recomputation", _finish, ("ctx",)),
        kind=RECOMPUTE,
        phase="recompute",
    )
    if hasattr(module, "_CheckpointFrame") and hasattr(module, "_recomputation_hook"):
        frame, hook = module._CheckpointFrame, module._recomputation_hook
        ends = getattr(frame, "check_recomputed_tensors_match", None)
        _call_before(torch, frame.__init__, _note, ("self",))
        _call_before(torch, hook.__init__, _begin, ("target_frame_ref",))
        _call_before(torch, ends, _end, ("self",))


def _call_before(torch, function, call, values):
    """Make a function of torch call ``call(value, frame)`` first."""
    call = guard.protect("recomputation", call)

    def begin(value):
        call(value, _getframe(1))

    def end(state, result):
        """Do nothing: no state is returned."""

    instrument.instrument(torch, function, begin, end, None, values, kind=RECOMPUTE)


def _note(checkpoint, frame):
    """Note which line called a checkpoint."""
    weak_table.note(pending, checkpoint, MAX_PENDING, [label(NAME, frame.f_back), 0])


def _begin(reference, frame):
    """Note when a recomputation begins."""
    known = weak_table.find(pending, reference())
    if known is not None:
        known[1][1] = now()


def _end(checkpoint, frame):
    """Record a recomputation that has ended."""
    known = weak_table.find(pending, checkpoint)
    if known is not None and known[1][1]:
        name, start = known[1]
        known[1][1] = 0
        journal.span(start, now() - start, 0, name, RECOMPUTE)


def _finish(frame, start, duration, values):
    known = weak_table.find(pending, values[0])
    name = journal.text(NAME) if known is None else known[1][0]
    journal.span(start, duration, 0, name, RECOMPUTE)
