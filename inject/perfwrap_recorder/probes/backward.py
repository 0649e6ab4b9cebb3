"""Times each backward pass.

Replaces ``torch.autograd.backward``, which ``Tensor.backward`` calls too; not ``torch.autograd.grad``, whose
replacing would change what Dynamo captures. The user could notice one more frame in a traceback. Says of each line
that keeps the graph for another pass that it does.
"""

from __future__ import annotations

from perfwrap_recorder import call_sites, guard, journal, journal_format, wrapping
from perfwrap_recorder.probes import live_graphs
from perfwrap_recorder.source_lines import label

RETAIN_GRAPH, CREATE_GRAPH = 2, 3
"""Their places among the arguments, as ``Tensor.backward`` passes them; where a pass is to be differentiated itself its
graph must stay."""
KEPT = (("retain_graph", True),)


def install(torch):
    """Watch from now on."""
    make = wrapping.timed("backward", _finish, journal_format.BACKWARD, journal_format.BACKWARD)
    wrapping.patch(torch, torch.autograd, "backward", make, "backward", kind=journal_format.BACKWARD)
    journal.cover("probe/backward")


def _finish(frame, start, duration, arguments):
    name = label("backward", frame)
    journal.span(start, duration, 0, name, journal_format.BACKWARD)
    if len(arguments) > CREATE_GRAPH and arguments[RETAIN_GRAPH] is True and arguments[CREATE_GRAPH] is False:
        guard.run("backward_facts", call_sites.describe, "backward", name, frame, KEPT)
    if live_graphs.left > 0 and arguments:
        guard.run("live_graphs", live_graphs.note, "backward", name, frame, arguments[0])
    # Tells the steps of a program whose optimizer is none of torch's kind.
    journal.end_step(journal_format.BACKWARD, 0, start + duration)
    return name
