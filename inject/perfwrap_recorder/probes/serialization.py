"""Times the writing and reading of checkpoints.

Replaces ``torch.save`` and ``torch.load``, under these names and in ``torch.serialization``. The user could
notice one more frame in a traceback, and one look at the size of a file that was just written.
"""

from __future__ import annotations

import os

from perfwrap_recorder import journal, journal_format, plainly, wrapping
from perfwrap_recorder.source_lines import label


def install(torch):
    """Watch from now on."""
    for name, finish in (("save", _finish_save), ("load", _finish_load)):
        make = wrapping.timed("serialization", finish)
        wrapping.patch(torch, torch.serialization, name, make, name)
        setattr(torch, name, getattr(torch.serialization, name))
    journal.cover("probe/serialization")


def _finish_save(frame, start, duration, arguments):
    size = _size(arguments[1]) if len(arguments) > 1 else -1
    journal.span(start, duration, size, label("torch.save", frame), journal_format.SAVE)


def _finish_load(frame, start, duration, arguments):
    size = _size(arguments[0]) if arguments else -1
    journal.span(start, duration, size, label("torch.load", frame), journal_format.LOAD)


def _size(file):
    """Return the bytes of a file that was given by its path, -1 for anything else."""
    if type(file) is not str and plainly.module_of(type(file)) not in ("pathlib", "pathlib._local"):
        return -1
    try:
        return os.stat(file).st_size
    except OSError:
        return -1
