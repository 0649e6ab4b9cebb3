"""Times the making of each batch, in the workers of a DataLoader or, without workers, in the process itself.

Instruments ``fetch`` of torch's two fetchers (map-style and iterable datasets). During one call the fetcher, an object
of torch, has a timing function instead of the collate function, and for some batches a list that records when each of
its indices is taken. The user's loader, dataset and collate function are not changed. ``dataset.__getitems__`` gets the
list that torch made. A batch with items that ``unchanged_items.py`` checks has such a function also while detail is
paused.

Up to Python 3.10 the traceback of an error in a collate function has one more frame; from 3.11 on it has not.

A nested batch (of a dataset that has its own loader) is part of the outer one. In a worker, each batch counts as a
step.
"""

from __future__ import annotations

import atexit
from _functools import partial
from _thread import get_ident
from _weakref import ref
from types import FunctionType, MethodType

from perfwrap_recorder import guard, journal_format, static_access
from perfwrap_recorder.clock import now
from perfwrap_recorder.instrumenting import instrument
from perfwrap_recorder.instrumenting import making as makers
from perfwrap_recorder.instrumenting.making import busy
from perfwrap_recorder.journal import journal
from perfwrap_recorder.journal.paused_detail import paused
from perfwrap_recorder.probes.data_loading import unchanged_items
from perfwrap_recorder.probes.data_loading.sample_times import SampleTimes, Stopwatch
from perfwrap_recorder.program import batches, source_lines

FETCH, GETITEM, COLLATE = journal_format.FETCH, journal_format.GETITEM, journal_format.COLLATE

MAX_NAMES = 1000
"""Known datasets and collate functions; beyond it all are dropped, since some programs make one per epoch."""

WRAPPERS = {
    "torch.utils.data.dataset.Subset": "dataset",
    "torch.utils.data.datapipes.datapipe._IterDataPipeSerializationWrapper": "_datapipe",
    "torch.utils.data.datapipes.datapipe._MapDataPipeSerializationWrapper": "_datapipe",
}
"""torch's datasets that wrap another one, and the attribute that holds it."""

INDEX = "possibly_batched_index"
"""The parameter of ``fetch`` with the indices of the samples."""

IS_WANTED = "%d not in _perfwrap_paused or not _perfwrap_watched.get(id(self), _perfwrap_nothing)[1](%s)" % (
    FETCH,
    INDEX,
)
"""Whether a call of ``fetch`` is recorded: not while detail is paused, unless items of the batch are checked."""

sample_times = SampleTimes()
_in_worker = []  # one token in a DataLoader's worker
_names = {}  # id of a class, or of a collate function -> (weak reference to it, text ids)


class Making:
    """One batch that is being made."""

    __slots__ = (
        *("collate", "collate_end", "collate_start", "count", "fetcher", "index", "is_split", "is_timed"),
        *("looked", "samples_end", "start", "weight"),
    )


def install(torch):
    """Start recording."""
    weigh = guard.protect("batch_bytes", batches.weigh_for(torch))
    unchanged_items.install(torch)
    known = {
        "_perfwrap_watched": unchanged_items.fetchers,
        "_perfwrap_nothing": unchanged_items.NOTHING,
    }
    fetchers = torch.utils.data._utils.fetch
    for kind in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        owner = getattr(fetchers, kind, None)
        if owner is not None:
            values = ("self", INDEX)
            instrument.instrument(
                torch, owner.fetch, *_around(weigh), values, IS_WANTED, known, rebind=(INDEX,)
            )
    journal.after_fork.add(_forget_parent)
    write = guard.protect("sample_times", sample_times.write_fact)
    journal.every_interval.add(guard.protect("sample_times", sample_times.write_fact_at_times))
    atexit.register(write)
    journal.cover("probe/fetching")


def begin_worker():
    """Count each batch as a step from now on."""
    _in_worker[:] = [True]


def end_worker():
    """Write the times of single samples: a worker does not run the handlers of ``atexit``."""
    sample_times.write_fact()


def _around(weigh):
    begin_batch = guard.protect("fetching", _begin)
    finish = guard.protect("fetching", _finish)

    def begin(fetcher, index):
        making = begin_batch(fetcher, index)
        if making is None:
            return None
        if making.collate:
            fetcher.collate_fn = _timed(making, weigh)
        making.start = now()
        return making.index, making, fetcher

    def end(state, data):
        ended = now()
        _, making, fetcher = state
        restore(making, fetcher)
        finish(fetcher, making, ended)

    def fail(state, error):
        restore(state[1], state[2])

    def restore(making, fetcher):
        if making.collate:
            fetcher.collate_fn = making.collate
        busy.discard(making.fetcher)
        makers.end(get_ident())

    return begin, end, fail


def _timed(making, weigh):
    """Return the function that replaces the collate function while one batch is made."""

    def collate(data):
        making.samples_end = making.collate_start = now()
        if type(data) is list:
            making.count = len(data)
        if making.looked is not None:
            guard.run("unchanged_items", unchanged_items.check, making.looked, data)
            making.looked = None
            making.collate_start = now()
        try:
            batch = making.collate(data)
        except BaseException as error:
            # Without this frame, a worker's error has the same text as without perfwrap.
            error.__traceback__ = error.__traceback__.tb_next
            raise
        making.collate_end = now()
        making.weight = weigh(batch)
        return batch

    return collate


def _begin(fetcher, index):
    """Return the record to fill while the batch is made; None if it is part of another batch."""
    thread, number = get_ident(), id(fetcher)
    if thread in busy or number in busy:
        return None
    making = Making()
    making.collate = making.collate_start = making.weight = making.looked = None
    making.count, making.fetcher, making.index = batches.UNKNOWN, number, index
    making.is_timed, making.is_split = FETCH not in paused, GETITEM not in paused
    if type(index) is list:
        making.looked = guard.run("unchanged_items", unchanged_items.look, fetcher, index, bool(_in_worker))
    if making.is_split or making.looked is not None:
        making.collate = fetcher.collate_fn
    if making.is_split:
        if type(index) is list and fetcher.auto_collation and sample_times.is_wanted():
            if "dataset_iter" in static_access.own(fetcher) or _takes_one(fetcher.dataset):
                making.index = Stopwatch(index)
    busy.add(number)
    makers.begin(thread, id(fetcher.dataset))
    return making


def _finish(fetcher, making, end):
    if not making.is_timed:
        return
    start, collated = making.start, making.collate_start
    count = making.count if fetcher.auto_collation else batches.UNKNOWN
    kind = type(_unwrapped(fetcher.dataset))
    fetch, getitem = _names_of_dataset(kind, "dataset_iter" in static_access.own(fetcher))
    if collated and making.is_split:
        journal.span(start, end - start, count, fetch, FETCH)
        journal.span(start, making.samples_end - start, count if count > 0 else 1, getitem, GETITEM)
        weight = batches.UNKNOWN if making.weight is None else making.weight
        name = _name_of_collate(fetcher.collate_fn)
        journal.span(collated, making.collate_end - collated, weight, name, COLLATE)
        if type(making.index) is Stopwatch:
            sample_times.add(making.index.moments)
        elif count > 0:
            sample_times.weigh((making.samples_end - start) // count)
    else:
        journal.span(start, end - start, batches.UNKNOWN, fetch, FETCH)
    if _in_worker:
        journal.end_step(FETCH, 0, end)


def _takes_one(dataset):
    """Return whether a dataset certainly has no ``__getitems__``, without accessing one."""
    members = [static_access.members_of(base) for base in static_access.mro_of(type(dataset))[:-1]]
    members.append(static_access.own(dataset))
    hooks = "__getitems__", "__getattr__", "__getattribute__"
    return not any(hook in each for each in members for hook in hooks)


def _unwrapped(dataset):
    """Return the dataset inside torch's wrappers."""
    for _ in range(batches.MAX_DEPTH):
        held = WRAPPERS.get(static_access.full_name(type(dataset)))
        if held is None:
            break
        dataset = static_access.own(dataset).get(held)
    return dataset


def _names_of_dataset(kind, is_iterable):
    """Return the text ids of a dataset's class and of its method that makes samples, with its line."""
    known = _names.get(id(kind))
    if known is None or known[0]() is not kind:
        # Iterable datasets inherit a __getitem__ from torch that only raises.
        methods = ("__iter__",) if is_iterable else ("__getitems__", "__getitem__", "__iter__")
        known = ref(kind), _class_name(kind), _define(kind, methods)
        _remember(id(kind), known)
    return known[1:]


def _name_of_collate(function):
    """Return the text id of a collate function, with its line."""
    known = _names.get(id(function))
    if known is None or known[0]() is not function:
        plain = function
        if type(plain) is partial:
            plain = plain.func
        plain = plain.__func__ if type(plain) is MethodType else plain
        if type(plain) is FunctionType:
            number = source_lines.define(static_access.name_of_callable(plain), plain)
        else:
            number = _define(type(plain), ("__call__",))
        try:
            known = ref(function), number
        except TypeError:  # without weak references, the name is found each time
            return number
        _remember(id(function), known)
    return known[1]


def _remember(key, known):
    if len(_names) >= MAX_NAMES:
        _names.clear()
    _names[key] = known


def _define(kind, methods):
    """Return the text id of the first of these methods that the class has, with its line."""
    for method in methods:
        function = static_access.member(kind, method)
        if function is not None:
            return source_lines.define("%s.%s" % (static_access.full_name(kind), method), function)
    return _class_name(kind)


def _class_name(kind):
    return journal.text(static_access.full_name(kind))


def _forget_parent():
    """In the child of a fork, forget the other threads of the parent, its samples and its checks of items."""
    makers.forget_other_threads()
    sample_times.clear()
    unchanged_items.forget()
