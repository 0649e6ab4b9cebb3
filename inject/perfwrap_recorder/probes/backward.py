"""Times each backward pass.

Replaces ``torch.autograd.backward``, which ``Tensor.backward`` calls too; not ``torch.autograd.grad``, whose
replacing would change what Dynamo captures. The user could notice one more frame in a traceback. Says of each line
that keeps the graph for another pass that it does.
"""

from __future__ import annotations

from perfwrap_recorder import call_sites, guard, journal, journal_format, wrapping
from perfwrap_recorder.probes import live_graphs
from perfwrap_recorder.source_lines import label

RETAIN_GRAPH, CREATE_GRAPH, INPUTS = 2, 3, 5
"""Their places among the arguments. Where a pass is to be differentiated itself its graph must stay, and one that is
for some inputs only cannot be joined with another."""
KEPT = (("retain_graph", True),)


def install(torch):
    """Watch from now on."""
    make = wrapping.timed_with_options("backward", _finish, journal_format.BACKWARD, journal_format.BACKWARD)
    wrapping.patch(torch, torch.autograd, "backward", make, "backward", kind=journal_format.BACKWARD)
    journal.cover("probe/backward")


def _finish(frame, start, duration, arguments, options):
    name = label("backward", frame)
    journal.span(start, duration, 0, name, journal_format.BACKWARD)
    if _keeps(arguments, options):
        guard.run("backward_facts", call_sites.describe, "backward", name, frame, KEPT)
    if live_graphs.left > 0 and arguments:
        guard.run("live_graphs", live_graphs.note, "backward", name, frame, arguments[0])
    # Tells the steps of a program whose optimizer is none of torch's kind.
    journal.end_step(journal_format.BACKWARD, 0, start + duration)
    return name


def _keeps(arguments, options):
    """Say whether a pass keeps the graph for another one of the same gradients."""
    option = call_sites.option
    return (
        option(arguments, options, RETAIN_GRAPH, "retain_graph", None) is True
        and option(arguments, options, CREATE_GRAPH, "create_graph", False) is False
        and option(arguments, options, INPUTS, "inputs", None) is None
    )
