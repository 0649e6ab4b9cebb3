"""Times the collections of Python's garbage collector.

Adds two functions to ``gc.callbacks`` until the program exits. The user could notice them in that list. A full
collection that the program requests (``gc.collect()``) has the line of the innermost Python function. Python's own
collections have none: they happen at any line that creates objects.

The two functions are in C, and call only what does not look for signals: Python would run a signal handler of the
program at the beginning of a function in Python, and drop what it raises, so a Ctrl-C during a collection, or while
``pickle`` reads a large file, would be lost. They note what is known in ``_noted``, from where it is written at ends of
steps, ten times a second.
"""

from __future__ import annotations

import atexit
import gc
import sys
from _functools import partial
from _operator import attrgetter, itemgetter, le
from _thread import get_ident
from collections import deque
from itertools import chain, count, repeat, starmap
from types import SimpleNamespace

from perfwrap_recorder import guard, journal_format
from perfwrap_recorder.clock import now
from perfwrap_recorder.instrumenting.compiling import compiles_frames
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program import source_lines

FULL = 2
PHASES = ("start", "stop")
MAX_NOTED = 4096
"""Of more notes between two ends of steps the oldest are dropped."""

NAME = "co_qualname" if sys.version_info >= (3, 11) else "co_name"
NOWHERE = SimpleNamespace(f_code=SimpleNamespace(**{"co_filename": "", NAME: ""}), f_lineno=0)
"""In place of a frame; a thread may collect garbage without one."""
NO_PLACE = "", 0, ""
"""File, line and function of a collection that Python itself has started."""

_given = {}  # phase -> information, of the call that runs
_noted = deque(maxlen=MAX_NOTED)  # a note for each call
_begun = []  # the note of the collection that runs


def _note_in_c():
    """Return the two functions, to be called one after the other."""
    nowhere = repeat(NO_PLACE)
    # Not _getframe, which fails without a frame, as in atexit.register(gc.collect). All threads' frames are asked for
    # only then: up to 3.11 other collections may begin while Python holds the lock that this takes.
    frames = map(dict.get, _calls(sys._current_frames), _calls(get_ident), repeat(NOWHERE))
    own = map(attrgetter("f_code.co_filename", "f_lineno", "f_code." + NAME), frames)
    # Up to 3.13 Python starts a full one only beyond the last threshold, 3.14 none at all: both are 0 there.
    is_asked_for = map(
        le, *[map(itemgetter(FULL), _calls(each)) for each in (gc.get_count, gc.get_threshold)]
    )
    of_full = map(next, map({True: own}.get, is_asked_for, repeat(nowhere)))
    generations = map(
        itemgetter("generation"), map(_given.get, repeat("start"), repeat({"generation": None}))
    )
    places = map(next, map({FULL: of_full}.get, generations, repeat(nowhere)))
    given = [_calls(_given.pop, phase, None) for phase in PHASES]
    notes = zip(places, _calls(now), _calls(get_ident), *given)  # noqa: B905 - Python 3.8
    # ``min`` calls its key for both of its arguments, of which it needs none: the first time it notes.
    both = zip(zip(count(), map(_noted.append, notes)), repeat((0,)))  # noqa: B905 - Python 3.8
    return _given.__setitem__, partial(min, key=partial(next, chain.from_iterable(both)))


def _calls(function, *arguments):
    """Return an iterator without end that calls a function."""
    return starmap(function, repeat(arguments))


_callbacks = _note_in_c()


def install(_):
    """Start recording."""
    if _callbacks[1] not in gc.callbacks:
        gc.callbacks.extend(_callbacks)
        atexit.register(stop)
        journal.look_often(_write)
        journal.after_fork.add(_forget)
    journal.cover("probe/garbage")


def _write():
    """Write the collections that have ended, unless Dynamo would look at the functions that this calls."""
    torch = sys.modules.get("torch")
    if torch is not None and not compiles_frames(torch):
        guard.run("garbage", _write_noted)


def _write_noted():
    while _noted:
        place, moment, thread, started, stopped = _noted.popleft()
        if started:
            _begun[:] = place, moment, thread
        elif stopped and _begun:
            place, start, thread = _begun
            del _begun[:]
            _add(start, moment - start, thread, stopped["generation"], place)


def _add(start, duration, thread, generation, place):
    name = source_lines.label_of("gc", *place)
    thread = journal.threads.get(thread) or journal.add_thread(thread)
    is_summed = journal.summing and start >= journal.sums.get(journal.BEGIN, 0)
    if is_summed and not (generation == FULL and journal.plan.keep_rare()):
        journal.add_to_sum(journal.sums, (journal_format.GC, name, thread), 1, duration)
    else:
        journal.put(start, duration, generation, name, thread, journal_format.GC)


def stop():
    """Stop recording."""
    gc.callbacks[:] = [each for each in gc.callbacks if not any(each is mine for mine in _callbacks)]
    _write()


def _forget():
    """Forget the parent's collections, in the child of a fork."""
    _noted.clear()
    _begun.clear()
