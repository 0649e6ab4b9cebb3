"""Writes, once for each calling line, with which options it calls a function.

The facts are ``TOPIC/1/line`` and ``TOPIC/1/OPTION`` for each option, then ``TOPIC/2/line`` and so on.
"""

from __future__ import annotations

from perfwrap_recorder import static_access
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program.source_lines import find_place

MAX_SITES = 50
"""Maximum number of lines described per topic."""

PLAIN = (bool, int, float, str, type(None))
"""Types whose text runs no code of the program; options of other types are left out."""

_described = {}  # topic -> set of (text id of a label, values of the options)


def describe(topic, label, frame, options):
    """Write the line of ``frame`` and the options, a tuple of (name, value), if they are new.

    ``label`` is the text id of the call's label, which distinguishes lines. A line that calls with different
    options is described once for each.
    """
    known = _described.get(topic)
    if known is None:
        known = _described.setdefault(topic, set())
    if len(known) >= MAX_SITES:
        return
    options = tuple([option for option in options if static_access.has_type(option[1], PLAIN)])
    if (label, options) in known:
        return
    known.add((label, options))
    prefix = "%s/%d/" % (topic, len(known))
    journal.fact(prefix + "line", find_place(frame))
    for name, value in options:
        journal.fact(prefix + name, value)


def option(arguments, options, place, name, default):
    """Return an option that may be given by position or by name."""
    if len(arguments) > place:
        return arguments[place]
    return options.get(name, default)


def default_of(function, name):
    """Return the default of a function's option, looking through wrappers; None if it has none."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code, defaults = getattr(function, "__code__", None), getattr(function, "__defaults__", None) or ()
    names = code.co_varnames[: code.co_argcount] if code else ()
    place = names.index(name) - len(names) if name in names else 0
    return defaults[place] if -len(defaults) <= place < 0 else None
