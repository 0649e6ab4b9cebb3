"""Times the collections of Python's garbage collector.

Adds a function to ``gc.callbacks`` until the program exits. The user could notice it in that list. A full
collection bears the line that was running: where it is ``gc.collect()``, the program asked for it.
"""

from __future__ import annotations

import atexit
import gc
from sys import _getframe

from perfwrap_recorder import guard, journal, journal_format
from perfwrap_recorder.clock import now
from perfwrap_recorder.source_lines import label

FULL = 2

_started = {}  # generation -> start of its collection; collections never overlap


def install(_):
    """Watch from now on."""
    if _note not in gc.callbacks:
        gc.callbacks.append(_note)
        atexit.register(stop)
    journal.cover("probe/garbage")


def _note(phase, information):
    generation = information["generation"]
    if phase == "start":
        _started[generation] = now()
        return
    start = _started.pop(generation, None)
    if start is not None:
        guard.run("garbage", _finish, _getframe().f_back, start, now() - start, generation)


def _finish(frame, start, duration, generation):
    name = label("gc", frame) if generation == FULL else journal.text("gc")
    journal.span(start, duration, generation, name, journal_format.GC)


def stop():
    """Say no more: while Python takes itself apart, nothing that the callback needs is sure to be there."""
    if _note in gc.callbacks:
        gc.callbacks.remove(_note)
