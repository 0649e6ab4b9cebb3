"""Times the clipping of gradients, and writes the options of each line that clips.

Instruments ``clip_grad_norm_`` and ``clip_grad_value_`` of ``torch.nn.utils.clip_grad``. Not seen: norms that a
program computes itself, and the methods of the same name of FSDP and other wrappers of models.
"""

from __future__ import annotations

import sys

from perfwrap_recorder import journal_format
from perfwrap_recorder.instrumenting import timing
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program import call_sites
from perfwrap_recorder.program.source_lines import label

OPTIONS = {
    "clip_grad_norm_": ("norm_type", "error_if_nonfinite", "foreach"),
    "clip_grad_value_": ("foreach",),
}
"""The options of each function that are written."""


def install(torch):
    """Start recording."""
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
