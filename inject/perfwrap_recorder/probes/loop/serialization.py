"""Times the writing and reading of checkpoints.

Instruments ``torch.save`` and ``torch.load``. The user could notice that the size of a file that was just written is
read once.
"""

from __future__ import annotations

import os

from perfwrap_recorder import journal_format, static_access
from perfwrap_recorder.instrumenting import timing
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program.source_lines import label


def install(torch):
    """Start recording."""
    for name, finish in (("save", _finish_save), ("load", _finish_load)):
        function = getattr(torch.serialization, name)
        timing.time_calls(torch, function, "serialization", finish, ("f",), range_name=name)
    journal.cover("probe/serialization")


def _finish_save(frame, start, duration, values):
    size = _size(values[0])
    journal.span(start, duration, size, label("torch.save", frame), journal_format.SAVE)


def _finish_load(frame, start, duration, values):
    size = _size(values[0])
    journal.span(start, duration, size, label("torch.load", frame), journal_format.LOAD)


def _size(file):
    """Return the size of a file that was given by its path, -1 for anything else."""
    if type(file) is not str and static_access.module_of(type(file)) not in ("pathlib", "pathlib._local"):
        return -1
    try:
        return os.stat(file).st_size
    except OSError:
        return -1
