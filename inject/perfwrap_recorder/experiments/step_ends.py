"""Calls functions at the ends of steps, for experiments; the journal itself calls only one."""

from __future__ import annotations

from perfwrap_recorder import guard
from perfwrap_recorder.journal import journal


def watch(name, function):
    """Call ``function(moment, is_step)`` after each end of a step or phase; true: detail must go on.

    What it raises is recorded under ``name``, except KeyboardInterrupt and SystemExit.
    """
    before, function = journal.at_step_end, guard.protect(name, function)
    if before is None:
        journal.at_step_end = function
        return

    def both(moment, is_step):
        wants_detail = before(moment, is_step)
        return function(moment, is_step) or wants_detail

    journal.at_step_end = both
