"""Times the clearing of gradients.

Instruments ``Optimizer.zero_grad`` and ``Module.zero_grad``. Says of each line that calls them whether gradients are
set to None.
"""

from __future__ import annotations

from perfwrap_recorder import call_sites, guard, journal, journal_format, timing
from perfwrap_recorder.probes import thrown_gradients
from perfwrap_recorder.source_lines import label


def install(torch):
    """Watch from now on."""
    begin = guard.protect("thrown_gradients", thrown_gradients.clearing)
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
        guard.run("thrown_gradients", thrown_gradients.cleared)
        call_sites.describe("zero_grad", number, frame, (("function", name), ("set_to_none", values[0])))

    return finish
