"""Rests: for most of very short steps nearly every probe lets its calls pass, and only little is counted.

A probe that only lets a call pass costs a quarter of one that times it. What goes on being noted while others rest
is what a sample of the steps would not tell: how many steps there were, and how long batches were waited for,
since such waits come in rare, long stalls. Rare kinds of spans are recorded as ever.

Where even that lets steps wait, rests are few and long, and for their length torch's own functions stand where
they stood before, and where steps and waits are counted, functions that do nothing else: nothing is passed by then.
Not once something compiles, or looks at the stacks of this program.
"""

from __future__ import annotations

import sys
from _functools import partial
from _weakref import ref

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

COUNTS = -1
"""In the place of a kind: what stands there while others rest only counts."""

resting = set()  # kinds of spans whose probes let all calls pass at present
counting = set()  # the thread whose steps and waits are counted meanwhile
mine = {}  # id of an iterator or an optimizer that this thread was seen to use in this rest -> its tally
retired = set()  # kinds whose probes let all calls pass from now on: even a sample of them costs too much
due = NEVER  # when the journal wants to be asked

CHANGES_BORNE = 400
MOST_CHANGES = CHANGES_BORNE if sys.version_info >= (3, 13) else NEVER
"""How often functions are taken out at most. From Python 3.13 on a class that was changed a thousand times is looked up
in slowly for good, with all that inherit from it (MAX_VERSIONS_PER_CLASS), and each time costs it two."""

_changes = []  # one token for each time that functions were taken out
_places = []  # (kind, owner, name, ours, what stands there instead or None where the owner inherits it)
_empty = []  # those of them that are taken out at present
_stays = []  # one token when nothing may be taken out any more
_lives = {}  # id of what is in ``mine`` -> a weak reference that takes it out again


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
        self.limit = NEVER
        self.due = due
        """The count, and the moment, at which the journal wants to be asked."""


_all = {}  # (kind, name, which) -> Tally


def ask():
    """Ask the journal what comes next, which may end the rest; ``guard`` puts the function in this place."""


def find_tally(kind, name, which=0):
    """Return the tally of the spans of that kind and name."""
    return _all.get((kind, name, which)) or _all.setdefault((kind, name, which), Tally(kind, name, which))


def count_as(thing, tally):
    """Have that iterator or optimizer count in that tally for the rest of this rest, or until it is gone; return it.

    Whatever else is touched between two steps costs more than all that is worked out: torch has used up the
    processor's caches. So it is not asked each time which thread that is, as long as only one has recorded anything.
    """
    _lives[id(thing)] = ref(thing, partial(mine.pop, id(thing)))
    mine[id(thing)] = tally
    return tally


def _forget():
    counting.clear()
    mine.clear()
    _lives.clear()


def offer(kind, owner, name, ours, theirs):
    """Say that ``ours``, a wrapper for spans of that kind, may be taken out; None where the owner inherits theirs.

    With COUNTS for the kind, ``theirs`` is ours, too: it only counts. The owner may be a dictionary.
    """
    _places.append((kind, owner, name, ours, theirs))


def take_out():
    """Have torch's own functions stand where wrappers of resting kinds do, and counters where those that count do.

    Where somebody has put others, they stay. Not before Dynamo is there: it remembers, as it is imported, what stands
    in some places.
    """
    if "torch._dynamo" not in sys.modules or len(_changes) >= MOST_CHANGES:
        return
    _changes.append(True)
    for place in _places:
        kind, owner, name, ours, theirs = place
        if (kind in resting or kind == COUNTS) and not _stays and _stands(owner, name) is ours:
            _put(owner, name, theirs)
            _empty.append(place)


def put_back(but=()):
    """Have the wrappers stand where they stood, but those of some kinds; where somebody else stands, later perhaps."""
    for place in _empty[:]:
        kind, owner, name, ours, theirs = place
        if kind not in but and _stands(owner, name) is theirs:
            _put(owner, name, ours)
            _empty.remove(place)


def _stands(owner, name):
    return (owner if isinstance(owner, dict) else vars(owner)).get(name)


def _put(owner, name, what):
    if isinstance(owner, dict):
        owner[name] = what
    elif what is None:
        delattr(owner, name)
    else:
        setattr(owner, name, what)


def stay():
    """Have all wrappers stand from now on: somebody goes by what stands there."""
    _stays[:] = [True]
    put_back()


def begin(thread, but):
    """Have the probes of all kinds rest but of the one that ends the steps, and count what this thread does."""
    take()
    _forget()
    counting.add(thread)
    resting.clear()
    resting.update(RESTING - {but}, retired)


def ask_again(moment, limit_of):
    """Ask the journal at that moment, or when one tally has its ``limit_of(tally)``."""
    global due
    due = moment
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
    put_back(retired)
    resting.clear()
    resting.update(retired)
    _forget()


def leave():
    """Have all probes that can rest do so for good, and torch's own functions stand where that can be."""
    retired.update(RESTING)
    resting.update(RESTING)
    _forget()
    take_out()


def come_back():
    """Have all probes note everything again."""
    retired.clear()
    end()


def retire_next():
    """Have the next probe rest for good, and return its name; None where all that may have been switched off are."""
    for probe, kinds in RETIRING:
        if not retired.issuperset(kinds):
            retired.update(kinds)
            resting.update(kinds)
            return probe
    return None
