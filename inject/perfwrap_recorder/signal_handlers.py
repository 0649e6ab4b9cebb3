"""Distinguishes what a signal handler of the program raised from errors of the recorder.

Python runs such a handler wherever the signal arrives, also in the recorder's code: for example a time limit that the
program sets with ``signal.alarm``, or the handler by which torch reports a dead worker of a loader. What it raises is
for the program.
"""

from __future__ import annotations

TAKES_MORE = 0x04  # the flag of code with an argument like ``*more``


def raised(error):
    """Return whether a signal handler raised the caught error: its frame was called with the interrupted frame."""
    trace = error.__traceback__.tb_next
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_back is not None and any(value is frame.f_back for value in _arguments(frame)):
            return True
        trace = trace.tb_next
    return False


def _arguments(frame):
    """Return the positional arguments of a call, as far as the function has not reassigned them."""
    code, known = frame.f_code, frame.f_locals
    found = [known.get(name) for name in code.co_varnames[: code.co_argcount]]
    if code.co_flags & TAKES_MORE:
        more = known.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        found += more if type(more) is tuple else ()
    return found
