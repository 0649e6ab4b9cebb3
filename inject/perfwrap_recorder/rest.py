"""Rests: for most of very short steps nearly every probe lets its calls pass, and only little is counted.

A probe that lets a call pass costs a test inside of torch's function. What goes on being noted while others rest is
what a sample of the steps would not tell: how many steps there were, and how long batches were waited for, since such
waits come in rare, long stalls. Rare kinds of spans are recorded as ever.

No function is exchanged for that, in a rest or elsewhere: what rests is the kind of span, in ``resting``.
"""

from __future__ import annotations

from perfwrap_recorder.journal_format import (
    BACKWARD,
    CLIP,
    COLLATE,
    COLLECTIVE,
    DATA,
    FETCH,
    FORWARD,
    GETITEM,
    IDLE,
    OPTIMIZER,
    PIN,
    SCHEDULER,
    SYNC,
    TRANSFER,
    ZERO_GRAD,
)

RESTING = frozenset(
    (DATA, FORWARD, BACKWARD, OPTIMIZER, ZERO_GRAD, SYNC, TRANSFER, FETCH, GETITEM, COLLATE, IDLE, PIN)
    + (SCHEDULER, CLIP, COLLECTIVE)
)
"""The kinds that a rest is for."""
RETIRING = (
    ("zero_grad", (ZERO_GRAD,)),
    ("scheduler", (SCHEDULER,)),
    ("gradient_clipping", (CLIP,)),
    ("transfers", (TRANSFER,)),
    ("fetching", (GETITEM, COLLATE)),
    ("collectives", (COLLECTIVE,)),
    ("sync", (SYNC,)),
)
"""The probes that are switched off, in this order, where even the least detail costs more than it may, and their kinds:
those first that a diagnosis misses least. Without the others there would be no steps or no account of them."""

NEVER = 1 << 62

resting = set()  # kinds of spans whose probes let all calls pass at present
counting = set()  # the thread whose steps and waits are counted meanwhile
retired = set()  # kinds whose probes let all calls pass from now on: even a sample of them costs too much
relieved = set()  # kinds that rest until a step ends, since there were too many without one
due = NEVER  # when the journal wants to be asked


class Tally:
    """How many spans of one kind and name there were since they were last written, and their nanoseconds.

    Probes add to it themselves, since a call would cost as much: the count always, and the duration where waits
    are what matters. They ``ask()`` at its limit, and those that have read the clock anyway when it is due.
    """

    __slots__ = ("count", "due", "duration", "kind", "limit", "name", "which")

    def __init__(self, kind, name, which):
        self.kind = kind
        self.name = name
        self.which = which
        """Which optimizer, say: tells apart those of one kind that may end a step."""
        self.count = 0
        self.duration = 0
        self.limit = _limit_of(self)
        self.due = due
        """The count, and the moment, at which the journal wants to be asked."""


_all = {}  # (kind, name, which) -> Tally


def _limit_of(tally):
    """Return how many may be counted before the journal is asked: what ``ask_again`` was last given, also for those
    that are first used in the midst of a rest."""
    return NEVER


def ask():
    """Ask the journal what comes next, which may end the rest; ``guard`` puts the function in this place."""


def find_tally(kind, name, which=0):
    """Return the tally of the spans of that kind and name."""
    return _all.get((kind, name, which)) or _all.setdefault((kind, name, which), Tally(kind, name, which))


def begin(thread, but):
    """Have the probes of all kinds rest but of the one that ends the steps, and count what this thread does."""
    take()
    counting.clear()
    counting.add(thread)
    relieved.clear()
    resting.clear()
    resting.update(RESTING - {but}, retired)


def ask_again(moment, limit_of):
    """Ask the journal at that moment, or when one tally has its ``limit_of(tally)``."""
    global due, _limit_of
    due, _limit_of = moment, limit_of
    for tally in list(_all.values()):
        tally.limit = limit_of(tally)
        tally.due = moment


def take():
    """Return (tally, count, duration) for all that was counted since the last time."""
    found = []
    for tally in list(_all.values()):
        if tally.count:
            found.append((tally, tally.count, tally.duration))
            tally.count = tally.duration = 0
    return found


def end():
    """Have the probes note everything again, but for the retired."""
    relieved.clear()
    resting.clear()
    resting.update(retired)
    counting.clear()


def relieve(kinds):
    """Have the probes of these kinds rest until a step ends."""
    relieved.update(kinds)
    resting.update(kinds)


def end_relief():
    """Have those that were relieved note everything again."""
    found = relieved - retired
    relieved.clear()
    if not counting:
        resting.difference_update(found)


def leave():
    """Have all probes that can rest do so for good."""
    retired.update(RESTING)
    resting.update(RESTING)
    counting.clear()


def come_back():
    """Have all probes note everything again."""
    retired.clear()
    end()


def retire(kinds):
    """Have the probes of these kinds rest for good."""
    retired.update(kinds)
    resting.update(kinds)


def retire_next():
    """Have the next probe rest for good, and return its name; None where all that may have been switched off are."""
    for probe, kinds in RETIRING:
        if not retired.issuperset(kinds):
            retire(kinds)
            return probe
    return None
