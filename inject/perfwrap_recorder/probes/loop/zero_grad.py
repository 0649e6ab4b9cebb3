"""Times the clearing of gradients.

Instruments ``Optimizer.zero_grad`` and ``Module.zero_grad``. Also writes for each calling line whether gradients
are set to None.
"""

from __future__ import annotations

from perfwrap_recorder import guard, journal_format
from perfwrap_recorder.instrumenting import timing
from perfwrap_recorder.journal import journal
from perfwrap_recorder.probes.loop import discarded_gradients
from perfwrap_recorder.program import call_sites
from perfwrap_recorder.program.source_lines import label


def install(torch):
    """Start recording."""
    begin = guard.protect("discarded_gradients", discarded_gradients.clearing)
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        finish = _finish_with(owner.__name__ + ".zero_grad")
        asked = ("set_to_none",)
        kind = journal_format.ZERO_GRAD
        timing.time_calls(
            torch, owner.zero_grad, "zero_grad", finish, asked, kind, range_name="zero_grad", before=begin
        )
    journal.cover("probe/zero_grad")


def _finish_with(name):
    def finish(frame, start, duration, values):
        number = label(name, frame)
        journal.span(start, duration, 0, number, journal_format.ZERO_GRAD)
        guard.run("discarded_gradients", discarded_gradients.cleared)
        call_sites.describe("zero_grad", number, frame, (("function", name), ("set_to_none", values[0])))

    return finish
