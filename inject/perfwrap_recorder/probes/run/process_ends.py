"""Writes what was counted in paused detail when a process of multiprocessing ends, maybe without ``atexit``.

Instruments ``_exit_function`` of ``multiprocessing.util``, which such a process always calls. Records nothing else.
"""

from __future__ import annotations

import sys

from perfwrap_recorder import guard
from perfwrap_recorder.instrumenting import instrument
from perfwrap_recorder.journal import lifecycle


def install(torch):
    """Start to watch for the end; torch has imported the module."""
    function = getattr(sys.modules.get("multiprocessing.util"), "_exit_function", None)
    if function is not None:
        instrument.instrument(torch, function, guard.protect("process_ends", lifecycle.flush), _pass)


def _pass(state, result):
    """Never called: ``begin`` returns no state."""
