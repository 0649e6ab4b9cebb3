"""Times each step of a learning rate scheduler.

Instruments ``step`` of each class in ``torch.optim.lr_scheduler`` that has one of its own. Not seen is a ``step``
that a class of the user's overrides without calling torch's.

Steps inside another scheduler's step are part of it; the one that a scheduler's ``__init__`` makes is not counted.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from sys import _getframe

from perfwrap_recorder import guard, journal_format, static_access
from perfwrap_recorder.clock import now
from perfwrap_recorder.instrumenting import instrument
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program.source_lines import label

SCHEDULER = journal_format.SCHEDULER

active = set()  # threads inside a scheduler's step


def install(torch):
    """Start recording."""
    module = sys.modules["torch.optim.lr_scheduler"]
    begin, end, fail = _around(guard.protect("scheduler", _finish))
    for owner in list(vars(module).values()):
        if isinstance(owner, type) and owner.__module__ == module.__name__ and "step" in vars(owner):
            instrument.instrument(torch, owner.step, begin, end, fail, ("self",), kind=SCHEDULER)
    journal.after_fork.add(_forget_other_threads)
    journal.cover("probe/scheduler")


def _around(finish):
    def begin(scheduler):
        thread = get_ident()
        if thread in active:
            return None
        active.add(thread)
        return now(), scheduler

    def end(state, result):
        duration = now() - state[0]
        active.discard(get_ident())
        finish(_getframe(1).f_back, state[1], state[0], duration)

    def fail(state, error):
        active.discard(get_ident())

    return begin, end, fail


def _finish(frame, scheduler, start, duration):
    callers = (frame, frame and frame.f_back)
    if any(caller and caller.f_code.co_name == "_initial_step" for caller in callers):
        return
    name = label(static_access.name_of(type(scheduler)) + ".step", frame)
    journal.span(start, duration, 0, name, SCHEDULER)


def _forget_other_threads():
    active.intersection_update({get_ident()})
