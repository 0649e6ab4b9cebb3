"""Times each backward pass.

Instruments ``torch.autograd.backward``, which ``Tensor.backward`` calls too; not ``torch.autograd.grad``. Says of each
line that keeps the graph for another pass that it does.
"""

from __future__ import annotations

from perfwrap_recorder import call_sites, guard, journal, journal_format, timing
from perfwrap_recorder.probes import live_graphs
from perfwrap_recorder.source_lines import label

BACKWARD = journal_format.BACKWARD
VALUES = ("tensors", "retain_graph", "create_graph", "inputs")
KEPT = (("retain_graph", True),)


def install(torch):
    """Watch from now on."""
    function = torch.autograd.backward
    timing.time_calls(torch, function, "backward", _finish, VALUES, BACKWARD, BACKWARD, "backward")
    journal.cover("probe/backward")


def _finish(frame, start, duration, values):
    name = label("backward", frame)
    journal.span(start, duration, 0, name, BACKWARD)
    if _keeps(*values[1:]):
        guard.run("backward_facts", call_sites.describe, "backward", name, frame, KEPT)
    if live_graphs.left > 0:
        guard.run("live_graphs", live_graphs.note, "backward", name, frame, values[0])
    # Tells the steps of a program whose optimizer is none of torch's kind.
    journal.end_step(BACKWARD, 0, start + duration)
    return name


def _keeps(retain_graph, create_graph, inputs):
    """Say whether a pass keeps the graph for another one of the same gradients.

    Where a pass is to be differentiated itself its graph must stay, and one that is for some inputs only cannot be
    joined with another.
    """
    return retain_graph is True and create_graph is False and inputs is None
