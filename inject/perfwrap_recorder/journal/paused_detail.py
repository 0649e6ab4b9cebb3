"""Paused detail: for most of very short steps, nearly every probe records nothing, and only little is counted.

A paused probe costs one test in torch's function. What is counted meanwhile is what a sample of the steps cannot show:
the number of steps, and the time of waiting for batches, since such waits come in rare, long stalls. Rare kinds of
spans are recorded as always.

No function is replaced when detail is paused or resumed: ``paused`` holds the kinds of spans. Steps of an optimizer and
waits of an iterator are counted by C functions that torch's own code calls (``passing_steps``, ``passing_waits``): a
Python function once a step costs ten microseconds, mostly by cache misses.
"""

from __future__ import annotations

from _functools import partial
from _weakref import ref
from itertools import chain, repeat

from perfwrap_recorder.journal_format import (
    BACKWARD,
    CLIP,
    CLOSURE,
    COLLATE,
    COLLECTIVE,
    DATA,
    FETCH,
    FORWARD,
    GETITEM,
    GRADIENT,
    IDLE,
    OPTIMIZER,
    PIN,
    RECOMPUTE,
    SCHEDULER,
    SYNC,
    TRANSFER,
    ZERO_GRAD,
)

PAUSABLE = frozenset(
    (DATA, FORWARD, BACKWARD, OPTIMIZER, ZERO_GRAD, SYNC, TRANSFER, FETCH, GETITEM, COLLATE, IDLE, PIN)
    + (SCHEDULER, CLIP, COLLECTIVE, RECOMPUTE, CLOSURE, GRADIENT)
)
"""The kinds that can be paused."""
SWITCH_OFF_ORDER = (
    ("zero_grad", (ZERO_GRAD,)),
    ("scheduler", (SCHEDULER,)),
    ("gradient_clipping", (CLIP,)),
    ("transfers", (TRANSFER,)),
    ("gradients", (GRADIENT,)),
    ("fetching", (GETITEM, COLLATE)),
    ("collectives", (COLLECTIVE,)),
    ("sync", (SYNC,)),
)
"""The probes that are switched off, in this order, if even the least detail costs too much, and their kinds: first
those that a diagnosis needs least. Without the other probes there would be no steps, or no breakdown of them."""

NEVER = 1 << 62

paused = set()  # kinds of spans that are not recorded at present
counting = set()  # the thread whose steps and waits are counted meanwhile
switched_off = set()  # kinds that are not recorded from now on: even a sample of them costs too much
throttled = set()  # kinds that are paused until a step ends: there were too many calls in this step
due = NEVER  # when the journal is called
passing_steps = {}  # id of an optimizer -> (function that returns whether its next step may pass, reference to it)
passing_waits = {}  # id of an iterator -> (until when its waits may pass, adds a duration, reference to it)
NO_STEPS, NO_WAITS = (int,), (0, int)
"""The defaults: no call may pass."""
NO = repeat(0)


class Tally:
    """The number of spans of one kind and name since they were last written, and their nanoseconds.

    Probes add to it themselves, since a call would cost as much: always the count, and the duration of waits. They
    ``ask()`` at its limit; those that have read the clock anyway also when it is due.
    """

    __slots__ = (
        "_durations",
        "_left",
        "_planned",
        "count",
        "due",
        "duration",
        "kind",
        "limit",
        "name",
        "which",
    )

    def __init__(self, kind, name, which):
        self.kind = kind
        self.name = name
        self.which = which
        """For example which optimizer: distinguishes those of one kind that may end a step."""
        self.count = 0
        self.duration = 0
        self.limit = _limit_of(self)
        self.due = due
        """The count, and the time, at which the journal is called."""
        self._left, self._planned, self._durations = None, 0, []

    def let_pass(self, optimizer, many):
        """Let ``many`` steps of an optimizer pass; they are counted without Python."""
        self.count_passed()
        self._left, self._planned = repeat(1, many), many
        _note(passing_steps, optimizer, chain(self._left, NO).__next__)

    def let_waits_pass(self, iterator):
        """Let an iterator's waits pass until the journal is called; their durations are kept."""
        _note(passing_waits, iterator, self.due, self._durations.append)

    def count_passed(self):
        """Add what has passed."""
        if self._left is not None:
            self.count += self._planned - self._left.__length_hint__()
            self._left = None
        kept = len(self._durations)
        self.count += kept
        self.duration += sum(self._durations[:kept])
        del self._durations[:kept]


def _note(table, thing, *known):
    key = id(thing)
    table[key] = (*known, ref(thing, partial(table.pop, key)))


def _let_none_pass():
    passing_steps.clear()
    passing_waits.clear()


_all = {}  # (kind, name, which) -> Tally


def _limit_of(tally):
    """Return how many may be counted before the journal is called.

    ``ask_again`` puts its function in this place; tallies that are made later in the pause use it too.
    """
    return NEVER


def ask():
    """Ask the journal what comes next, which may end the pause; ``guard`` puts its function in this place."""


def find_tally(kind, name, which=0):
    """Return the tally of the spans of that kind and name."""
    return _all.get((kind, name, which)) or _all.setdefault((kind, name, which), Tally(kind, name, which))


def begin(thread, but):
    """Pause all kinds except the one that ends steps, and count what this thread does."""
    take()
    counting.clear()
    counting.add(thread)
    throttled.clear()
    paused.clear()
    paused.update(PAUSABLE - {but}, switched_off)


def ask_again(moment, limit_of):
    """Ask the journal at that moment, or when a tally reaches its ``limit_of(tally)``."""
    global due, _limit_of
    due, _limit_of = moment, limit_of
    _let_none_pass()
    for tally in list(_all.values()):
        tally.count_passed()
        tally.limit = limit_of(tally)
        tally.due = moment


def take():
    """Return (tally, count, duration) of what was counted since the last call."""
    found = []
    _let_none_pass()
    for tally in list(_all.values()):
        tally.count_passed()
        if tally.count:
            found.append((tally, tally.count, tally.duration))
            tally.count = tally.duration = 0
    return found


def end():
    """Resume all kinds except those that are switched off."""
    throttled.clear()
    paused.clear()
    paused.update(switched_off)
    _stop_counting()


def throttle(kinds):
    """Pause these kinds until a step ends."""
    throttled.update(kinds)
    paused.update(kinds)


def end_throttle():
    """Resume the kinds that were throttled."""
    found = throttled - switched_off
    throttled.clear()
    if not counting:
        paused.difference_update(found)


def switch_all_off():
    """Pause all kinds for good."""
    switched_off.update(PAUSABLE)
    paused.update(PAUSABLE)
    _stop_counting()


def _stop_counting():
    counting.clear()
    _let_none_pass()


def switch_all_on():
    """Resume all kinds, also those that were switched off."""
    switched_off.clear()
    end()


def switch_off(kinds):
    """Pause these kinds for good."""
    switched_off.update(kinds)
    paused.update(kinds)


def switch_off_next():
    """Switch the next probe off and return its name; None if no more may be switched off."""
    for probe, kinds in SWITCH_OFF_ORDER:
        if not switched_off.issuperset(kinds):
            switch_off(kinds)
            return probe
    return None
