"""Checks whether the items of map-style datasets are the same bytes each time that they are made.

Replaces nothing: ``data_loader.py`` says which loader a fetcher of torch's belongs to, and ``fetching.py`` calls
``look`` before a batch is made and ``check`` when its items are on their way to the collate function.

About twelve indices of a dataset are chosen by their numbers alone, so all workers and epochs choose the same ones. No
length is asked of the dataset: the choice depends on the largest index so far, up to the next power of two. Of each
chosen item in each of the first MAX_CHECKS batches with it, one fact is written:
``item/<loader, or "worker" in a worker>/<index>`` = checksum, bytes, place in memory, 1 if a global
random generator moved while the batch's items were made, and the largest index so far; or only ``unknown``.

While detail is paused, ``fetching.py`` asks the table ``fetchers`` in C whether a batch holds a chosen index.
"""

from __future__ import annotations

from time import thread_time_ns

from perfwrap_recorder import static_access
from perfwrap_recorder.clock import now
from perfwrap_recorder.instrumenting.compiling import compiles_frames
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program import checksums, tensor_access, weak_table

CHOSEN = 18
"""Indices below a power of two; nine to eighteen of them are in the dataset."""
GOLDEN = 0.6180339887
"""Multiples of this part of a range are spread evenly over it."""
MAX_CHECKS = 5
"""How often an item is checked in a process."""
MAX_WATCHED = 32
"""Loaders of a process that are watched."""
MAX_FETCHERS = 1000
MAX_NS = 40_000_000
"""CPU time that all checks of a process may take; other programs may stop a check for longer."""
IN_WORKER = "worker"

NOTHING = None, id
"""The entry of a fetcher that is not watched: its function says of any batch that nothing in it is chosen."""

fetchers = {}  # id of a fetcher -> (weak reference, function(indices): true if none of them is chosen, Watched)
_watched = {}  # name of a loader -> Watched
_torch = []  # the module, once it is imported
_spent = [0]  # CPU time of all checks so far


class Watched:
    """The items of one loader in this process."""

    __slots__ = ("chosen", "is_known", "is_sure", "largest", "name", "seen", "size")

    def __init__(self, name, is_sure):
        self.name = name
        self.is_sure = is_sure
        """Whether all its indices are integers: torch's own samplers make them, or they came to a worker."""
        self.is_known = False
        """Whether it is known that its items are fetched by integers."""
        self.chosen = set()
        self.seen = {}
        """Index -> (how often it was checked, its last checksum)."""
        self.largest = -1
        self.size = 0

    def grow(self, largest):
        """Choose among more indices."""
        self.largest = largest
        if largest >= self.size:
            self.size = 1 << largest.bit_length()
            self.chosen.clear()
            self.chosen.update(each for each in chosen_below(self.size) if self.times(each) < MAX_CHECKS)

    def times(self, index):
        """Return how often an item was checked."""
        return self.seen.get(index, (0,))[0]


class Look:
    """A batch with chosen items that is being made."""

    __slots__ = ("count", "places", "states", "watched")

    def __init__(self, watched, places, count, states):
        self.watched, self.places, self.count, self.states = watched, places, count, states


def install(torch):
    """Be ready to check items."""
    _torch[:] = [torch]


def forget():
    """Begin anew, in the child of a fork."""
    fetchers.clear()
    _watched.clear()
    _spent[0] = 0


def chosen_below(size):
    """Return the chosen indices below a power of two."""
    step = int(size * GOLDEN) | 1
    return {number * step % size for number in range(CHOSEN)}


def watch(fetcher, name, sampler=None):
    """Watch the items that a fetcher makes for a loader with that sampler of batches, or in a worker without it."""
    watched = _watched.get(name)
    if watched is None:
        if len(_watched) >= MAX_WATCHED:
            return None
        watched = _watched[name] = Watched(name, name == IN_WORKER or _is_torchs(sampler))
    if watched.chosen is None or not weak_table.note(fetchers, fetcher, MAX_FETCHERS, id, watched):
        return None
    if watched.is_known:
        _ask_about(fetcher, watched)
    return watched


def look(fetcher, indices, is_worker):
    """Return what is known before a batch is made, if items in it are chosen."""
    known = weak_table.find(fetchers, fetcher)
    if known is None:
        # Workers that persist make a fetcher for each epoch.
        watched = watch(fetcher, IN_WORKER) if is_worker else None
    else:
        watched = known[2]
    if watched is None or watched.chosen is None or not indices or compiles_frames(_torch[0]):
        return None
    if type(indices) is not list or any(type(each) is not int for each in indices):
        _give_up(watched)
        return None
    if not watched.is_known:
        mine = static_access.own(fetcher)
        if mine.get("auto_collation") is not True or "dataset_iter" in mine:
            _give_up(watched)
            return None
        watched.is_known = True
        _ask_about(fetcher, watched)
    largest = max(indices)
    if largest > watched.largest:
        watched.grow(largest)
    chosen = watched.chosen
    if chosen.isdisjoint(indices):
        return None
    start = now(), thread_time_ns()
    places = [(at, index) for at, index in enumerate(indices) if index in chosen]
    states = checksums.generator_states(_torch[0])
    _spend(start)
    if states is tensor_access.LATER:
        return None
    return Look(watched, places, len(indices), states)


def check(looked, data):
    """Write the checksums of chosen items of a batch."""
    watched = looked.watched
    if watched.chosen is None or type(data) is not list or len(data) != looked.count:
        return
    start = now(), thread_time_ns()
    states = checksums.generator_states(_torch[0])
    # A generator may have been imported meanwhile.
    if states is not tensor_access.LATER and [each is None for each in states] == [
        each is None for each in looked.states
    ]:
        for at, index in looked.places:
            if watched.chosen is None:
                break
            _check_item(watched, index, data[at], states != looked.states)
    _spend(start)


def _check_item(watched, index, item, has_moved):
    found = checksums.checksum(_torch[0], item)
    if found is tensor_access.LATER:
        return
    key = "item/%s/%d" % (watched.name, index)
    if found is None:
        journal.fact(key, "unknown")
        _give_up(watched)
        return
    journal.fact(key, "%d %d %d %d %d" % (*found, has_moved, watched.largest))
    times, before = watched.seen.get(index, (0, found[0]))
    watched.seen[index] = times + 1, found[0]
    if times + 1 >= MAX_CHECKS:
        watched.chosen.discard(index)
    is_done = min(watched.chosen, default=watched.largest + 1) > watched.largest
    if has_moved or before != found[0] or is_done:  # more checks would say nothing new
        _give_up(watched)


def _ask_about(fetcher, watched):
    """Check items while detail is paused, too, where no index is one of the program's own making."""
    if watched.is_sure:
        key = id(fetcher)
        fetchers[key] = fetchers[key][0], watched.chosen.isdisjoint, watched


def _is_torchs(sampler):
    """Return whether torch's own classes choose the indices of batches: lists of integers."""
    inner = static_access.own(sampler).get("sampler")
    return all(
        static_access.module_of(type(each)).startswith("torch.utils.data.") for each in (sampler, inner)
    )


def _give_up(watched):
    """Check no more items of a loader."""
    watched.chosen = None
    for key, known in list(fetchers.items()):
        if known[2] is watched:
            fetchers.pop(key, None)


def _spend(start):
    """Count the time of a check; check nothing more if all took too long."""
    began, cpu_ns = start
    _spent[0] += thread_time_ns() - cpu_ns
    journal.own_work(began)
    if _spent[0] > MAX_NS:
        for watched in list(_watched.values()):
            if watched.chosen is not None:
                _give_up(watched)
