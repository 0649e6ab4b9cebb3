"""Times each step of a learning rate scheduler.

Replaces ``step`` of each class in ``torch.optim.lr_scheduler`` that has one of its own. The user could notice one
more frame in a traceback. Not seen is a ``step`` that a class of the user's overrides without calling torch's.

Steps inside of another scheduler's are part of it, and the one with which a scheduler is made is none.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from sys import _getframe

from perfwrap_recorder import guard, journal, journal_format, plainly, wrapping
from perfwrap_recorder.clock import now
from perfwrap_recorder.rest import resting
from perfwrap_recorder.source_lines import label

SCHEDULER = journal_format.SCHEDULER

active = set()  # threads inside of a scheduler's step


def install(torch):
    """Watch from now on."""
    module = sys.modules["torch.optim.lr_scheduler"]
    # Dynamo skips the schedulers' file by its exact name; no other name is like it but one that it skips too.
    skipped = os.path.dirname(torch.__file__) + "/_compile.py"
    finish = guard.protect("scheduler", _finish)
    for owner in list(vars(module).values()):
        if isinstance(owner, type) and owner.__module__ == module.__name__ and "step" in vars(owner):
            wrapping.patch(torch, owner, "step", _make(finish), file=skipped)
    journal.after_fork.add(_forget_other_threads)
    journal.cover("probe/scheduler")


def _make(finish):
    def make(original, _, is_compiling):
        def wrapper(self, *arguments, **options):
            if is_compiling() or SCHEDULER in resting or get_ident() in active:
                return original(self, *arguments, **options)
            thread = get_ident()
            active.add(thread)
            try:
                start = now()
                result = original(self, *arguments, **options)
                duration = now() - start
            finally:
                active.discard(thread)
            finish(_getframe().f_back, self, start, duration)
            return result

        return wrapper

    return make


def _finish(frame, scheduler, start, duration):
    callers = (frame, frame and frame.f_back)
    if any(caller and caller.f_code.co_name == "_initial_step" for caller in callers):
        return
    name = label(plainly.name_of(type(scheduler)) + ".step", frame)
    journal.span(start, duration, 0, name, SCHEDULER)


def _forget_other_threads():
    active.intersection_update({get_ident()})
