"""Tells what a signal handler of the program's raised from what went wrong in the recorder.

Python runs such a handler wherever the signal finds it, in the midst of the recorder too: a time limit that a program
sets itself with ``signal.alarm``, say, or the handler with which torch tells of a loader's dead worker. What it raises
belongs to the program.
"""

from __future__ import annotations

TAKES_MORE = 0x04  # the flag of code with an argument like ``*more``


def raised(error):
    """Say whether a signal handler raised the error that was caught: its frame got the one it interrupted to see."""
    trace = error.__traceback__.tb_next
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_back is not None and any(value is frame.f_back for value in _arguments(frame)):
            return True
        trace = trace.tb_next
    return False


def _arguments(frame):
    """Return what a function was called with by position, as far as it has not put something else there."""
    code, known = frame.f_code, frame.f_locals
    found = [known.get(name) for name in code.co_varnames[: code.co_argcount]]
    if code.co_flags & TAKES_MORE:
        more = known.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        found += more if type(more) is tuple else ()
    return found
