"""Times the clearing of gradients.

Replaces ``Optimizer.zero_grad`` and ``Module.zero_grad``. The user could notice one more frame in a
traceback. Says of each line that calls them whether gradients are set to None.
"""

from __future__ import annotations

from perfwrap_recorder import call_sites, guard, journal, journal_format, wrapping
from perfwrap_recorder.probes import thrown_gradients
from perfwrap_recorder.source_lines import label


def install(torch):
    """Watch from now on."""
    begin = guard.protect("thrown_gradients", thrown_gradients.clearing)
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        default = call_sites.default_of(owner.zero_grad, "set_to_none")
        finish = _finish_with(owner.__name__ + ".zero_grad", default)
        make = wrapping.timed_with_options("zero_grad", finish, journal_format.ZERO_GRAD, begin=begin)
        wrapping.patch(torch, owner, "zero_grad", make, "zero_grad", kind=journal_format.ZERO_GRAD)
    journal.cover("probe/zero_grad")


def _finish_with(name, default):
    def finish(frame, start, duration, arguments, options):
        number = label(name, frame)
        journal.span(start, duration, 0, number, journal_format.ZERO_GRAD)
        guard.run("thrown_gradients", thrown_gradients.cleared)
        value = call_sites.option(arguments, options, 1, "set_to_none", default)
        call_sites.describe("zero_grad", number, frame, (("function", name), ("set_to_none", value)))

    return finish
