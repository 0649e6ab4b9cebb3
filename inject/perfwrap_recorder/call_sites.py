"""Says once for each line that calls something how it calls it.

The facts are ``TOPIC/1/line`` and ``TOPIC/1/OPTION`` for each option, then ``TOPIC/2/line`` and so on.
"""

from __future__ import annotations

from perfwrap_recorder import journal, plainly
from perfwrap_recorder.source_lines import find_place

MAXIMUM_SITES = 50
"""How many lines of one topic are described."""

PLAIN = (bool, int, float, str, type(None))
"""Types whose text costs nothing and calls nobody; an option of any other is left out."""

_described = {}  # topic -> set of (text id of a label, values of the options)


def describe(topic, label, frame, options):
    """Say the line of ``frame`` and the options, a tuple of (name, value), where that is new.

    ``label`` is the text id of the call's label, which tells lines apart. A line that calls with different
    options is described once for each.
    """
    known = _described.get(topic)
    if known is None:
        known = _described.setdefault(topic, set())
    if len(known) >= MAXIMUM_SITES:
        return
    options = tuple([option for option in options if plainly.has_type(option[1], PLAIN)])
    if (label, options) in known:
        return
    known.add((label, options))
    prefix = "%s/%d/" % (topic, len(known))
    journal.fact(prefix + "line", find_place(frame))
    for name, value in options:
        journal.fact(prefix + name, value)


def option(arguments, options, place, name, default):
    """Return an option that may have been given by its place or by its name."""
    if len(arguments) > place:
        return arguments[place]
    return options.get(name, default)


def default_of(function, name):
    """Return the default of a function's option, looking through wrappers; None where it has none."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code, defaults = getattr(function, "__code__", None), getattr(function, "__defaults__", None) or ()
    names = code.co_varnames[: code.co_argcount] if code else ()
    place = names.index(name) - len(names) if name in names else 0
    return defaults[place] if -len(defaults) <= place < 0 else None
