"""Calls functions at the ends of steps and phases; the journal itself calls only one."""

from __future__ import annotations

from perfwrap_recorder import guard
from perfwrap_recorder.journal import journal

_watchers = {}  # name -> function


def watch(name, function):
    """Call ``function(moment, is_step)`` after each end of a step or phase; true: detail must go on.

    What it raises is recorded under ``name``, except KeyboardInterrupt and SystemExit. Functions are called in their
    order.
    """
    _watchers[name] = guard.protect(name, function)
    _set()


def unwatch(name):
    """Do not call that function any more."""
    if _watchers.pop(name, None):
        _set()


def _set():
    functions = tuple(_watchers.values())
    journal.at_step_end = (
        None if not functions else functions[0] if len(functions) == 1 else _all_of(functions)
    )


def _all_of(functions):
    def call_all(moment, is_step):
        wants_detail = False
        for function in functions:
            wants_detail = function(moment, is_step) or wants_detail
        return wants_detail

    return call_all
