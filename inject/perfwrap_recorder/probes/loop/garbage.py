"""Times the collections of Python's garbage collector.

Adds a function to ``gc.callbacks`` until the program exits. The user could notice it in that list. A full
collection that the program requests (``gc.collect()``) has its line. Python's own collections have none: they
happen at any line that creates objects.
"""

from __future__ import annotations

import atexit
import gc
from gc import get_count, get_threshold
from sys import _getframe

from perfwrap_recorder import guard, journal_format
from perfwrap_recorder.clock import now
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program.source_lines import label

FULL = 2

_started = {}  # generation -> start of its collection, and whether the program requested it; collections never overlap


def install(_):
    """Start recording."""
    if _note not in gc.callbacks:
        gc.callbacks.append(_note)
        atexit.register(stop)
    journal.cover("probe/garbage")


def _note(phase, information):
    generation = information["generation"]
    if phase == "start":
        _started[generation] = now(), generation == FULL and _is_asked_for()
        return
    start, is_requested = _started.pop(generation, (None, False))
    if start is not None:
        frame = _getframe().f_back if is_requested else None
        guard.run("garbage", _finish, frame, start, now() - start, generation)


def _is_asked_for():
    """Return whether the program, not Python, started the full collection."""
    # Up to 3.13 Python starts one only beyond the last threshold, 3.14 none at all: its last count and threshold are 0.
    return get_count()[FULL] <= get_threshold()[FULL]


def _finish(frame, start, duration, generation):
    name = journal.text("gc") if frame is None else label("gc", frame)
    journal.span(start, duration, generation, name, journal_format.GC)


def stop():
    """Stop recording: while Python shuts down, what the callback needs may be gone."""
    if _note in gc.callbacks:
        gc.callbacks.remove(_note)
