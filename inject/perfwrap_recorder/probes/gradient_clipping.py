"""Times the clipping of gradients, and says how each line that does it asks for it.

Instruments ``clip_grad_norm_`` and ``clip_grad_value_`` of ``torch.nn.utils.clip_grad``. Not seen are norms that a
program works out itself, nor the methods of the same name that FSDP's and other wrappers of models bring along.
"""

from __future__ import annotations

import sys

from perfwrap_recorder import call_sites, journal, journal_format, timing
from perfwrap_recorder.source_lines import label

OPTIONS = {
    "clip_grad_norm_": ("norm_type", "error_if_nonfinite", "foreach"),
    "clip_grad_value_": ("foreach",),
}
"""The options worth knowing of each function."""


def install(torch):
    """Watch from now on."""
    module = sys.modules["torch.nn.utils.clip_grad"]
    for name, options in OPTIONS.items():
        function, finish = getattr(module, name, None), _finish_with(name, options)
        timing.time_calls(torch, function, "gradient_clipping", finish, options, journal_format.CLIP)
    journal.cover("probe/gradient_clipping")


def _finish_with(name, options):
    def finish(frame, start, duration, values):
        number = label(name, frame)
        journal.span(start, duration, 0, number, journal_format.CLIP)
        found = list(zip(options, values))  # noqa: B905 - Python 3.8
        call_sites.describe("clip", number, frame, [("function", name), *found])

    return finish
