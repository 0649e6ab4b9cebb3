"""Times each backward pass.

Instruments ``torch.autograd.backward``, which ``Tensor.backward`` calls too; gradients.py does ``torch.autograd.grad``.
Also writes which lines keep the graph for another pass.
"""

from __future__ import annotations

from _thread import get_ident

from perfwrap_recorder import guard, journal_format
from perfwrap_recorder.instrumenting import timing
from perfwrap_recorder.journal import journal
from perfwrap_recorder.probes.loop import live_graphs
from perfwrap_recorder.program import call_sites, tensor_access
from perfwrap_recorder.program.source_lines import label

BACKWARD = journal_format.BACKWARD
VALUES = ("tensors", "retain_graph", "create_graph", "inputs")
KEPT = (("retain_graph", True),)

NOTE_TRAINER = "len(_perfwrap_threads) > 1 and _perfwrap_trainers.add(_perfwrap_get_ident())"
"""Code in torch's own function. In a program with one thread, noting it would take 2 us of each step."""


def install(torch):
    """Start recording."""
    function = torch.autograd.backward
    timing.time_calls(
        torch,
        function,
        *("backward", _finish, VALUES, BACKWARD, BACKWARD, "backward"),
        before=tensor_access.note_trainer,
        always=NOTE_TRAINER,
        known={
            "_perfwrap_threads": tensor_access.threads,
            "_perfwrap_trainers": tensor_access.trainers,
            "_perfwrap_get_ident": get_ident,
        },
    )
    journal.after_fork.add(tensor_access.trainers.clear)
    journal.cover("probe/backward")


def _finish(frame, start, duration, values):
    name = label("backward", frame)
    journal.span(start, duration, 0, name, BACKWARD)
    if _keeps(*values[1:]):
        guard.run("backward_facts", call_sites.describe, "backward", name, frame, KEPT)
    if live_graphs.left > 0:
        guard.run("live_graphs", live_graphs.note, "backward", name, frame, values[0])
    # The end of a step in a program without an optimizer of torch.
    journal.end_step(BACKWARD, 0, start + duration)
    return name


def _keeps(retain_graph, create_graph, inputs):
    """Return whether a pass keeps the graph for another one of the same gradients.

    If a pass is to be differentiated itself, its graph must stay; one for some inputs only cannot be joined with
    another.
    """
    return retain_graph is True and create_graph is False and inputs is None
