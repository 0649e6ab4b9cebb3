"""Times the clipping of gradients, and says how each line that does it asks for it.

Replaces ``clip_grad_norm_`` and ``clip_grad_value_`` in ``torch.nn.utils`` and ``torch.nn.utils.clip_grad``. The
user could notice one more frame in a traceback. Not seen are norms that a program works out itself, nor the
methods of the same name that FSDP's and other wrappers of models bring along.
"""

from __future__ import annotations

import sys

from perfwrap_recorder import call_sites, journal, journal_format, wrapping
from perfwrap_recorder.source_lines import label

OPTIONS = {
    "clip_grad_norm_": (("norm_type", 2), ("error_if_nonfinite", 3), ("foreach", 4)),
    "clip_grad_value_": (("foreach", 2),),
}
"""The options worth knowing of each function, and their places."""


def install(torch):
    """Watch from now on."""
    module = sys.modules["torch.nn.utils.clip_grad"]
    for name, options in OPTIONS.items():
        function = getattr(module, name, None)
        asked = [(option, place, call_sites.default_of(function, option)) for option, place in options]
        make = wrapping.timed_with_options(
            "gradient_clipping", _finish_with(name, asked), journal_format.CLIP
        )
        wrapping.patch(torch, module, name, make)
        if getattr(torch.nn.utils, name, None) is function:
            setattr(torch.nn.utils, name, getattr(module, name))
    journal.cover("probe/gradient_clipping")


def _finish_with(name, asked):
    def finish(frame, start, duration, arguments, options):
        number = label(name, frame)
        journal.span(start, duration, 0, number, journal_format.CLIP)
        values = [
            (option, call_sites.option(arguments, options, place, option, default))
            for option, place, default in asked
        ]
        call_sites.describe("clip", number, frame, [("function", name)] + values)

    return finish
