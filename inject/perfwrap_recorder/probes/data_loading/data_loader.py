"""Times the wait for each batch of each DataLoader in the main process, and writes how the loader is set up.

Instruments ``_BaseDataLoaderIter.__next__``, ``DataLoader._get_iterator`` (which starts the workers; also that of
torchdata's ``StatefulDataLoader``) and ``DataLoader.check_worker_number_rationality`` (with which
``DataLoader.__init__`` ends: the line that made the loader is known there). Loaders and iterators keep their types and
attributes.
"""

from __future__ import annotations

from _thread import get_ident
from _weakref import ref
from itertools import count
from sys import _getframe

from perfwrap_recorder import guard, journal_format, roles, static_access
from perfwrap_recorder.clock import now
from perfwrap_recorder.gpu import nvtx_ranges
from perfwrap_recorder.instrumenting import instrument
from perfwrap_recorder.journal import journal, paused_detail, switching
from perfwrap_recorder.journal.paused_detail import counting, find_tally
from perfwrap_recorder.probes.data_loading import padding_facts, ready_batches, unchanged_items
from perfwrap_recorder.program import batches, tensor_access, weak_table
from perfwrap_recorder.program.source_lines import find_place, label

MAX_LOADERS = 200
"""Maximum number of loaders with a name of their own."""

CALLERS = 8
"""Number of frames that identify where a loader was made: loaders made again for each epoch share one name."""

KEPT = 1000
"""Maximum number of iterators, and of loaders, that are known at a time; further ones share one name."""

MAX_STARTS = 1000
"""How often the processes of a loader's workers are written."""

SETTINGS = ("num_workers", "batch_size", "pin_memory", "drop_last", "prefetch_factor", "persistent_workers")

DATASETS = "torch.utils.data.dataset."
"""The module of torch's datasets, whose length costs nothing; for others the user's code would have to run."""
SIZED = (list, tuple, range, dict, str, bytes)

PASSING = (
    "(_perfwrap_waits := _perfwrap_passing_waits.get(id(self), _perfwrap_no_waits))[0]"
    " > (_perfwrap_state := _perfwrap_now()) and _perfwrap_state",
    "_perfwrap_waits[1](_perfwrap_now() - _perfwrap_state)",
)
"""Code in torch's own function: see instrument.py, and ``passing_waits`` in paused_detail.py."""

STRANGER = None, "loader", -1, find_tally(journal_format.DATA, "loader")
"""The entry of an unknown iterator."""

MORE = "loader/more"
CROWDED = None, MORE, -1, find_tally(journal_format.DATA, MORE)
"""The entry of an unknown iterator if there are too many."""

at_start = None  # function(name of a loader, its iterator) of a trial

_next_number = count(1).__next__
_next_start = count(1).__next__
_torch = []  # the module, once it is imported
_loaders = {}  # id of a DataLoader -> (weak reference to it, name)
_named = {}  # what is known of a loader when it is made, and where -> Alike
_names = {}  # name of a loader -> Named
_freed = []  # weak references to loaders that are gone, which may be made again
_iterators = {}  # id of an iterator -> (weak reference to it, name of its loader, batch size or -1, tally)
_fresh = set()  # ids of iterators whose next batch is the first of an epoch


class Alike:
    """The names of loaders that were made in the same place with the same settings."""

    __slots__ = ("free", "of_data")

    def __init__(self):
        self.free = {}  # number of a name -> Named, of those that are free
        self.of_data = {}  # id of a dataset -> Named


class Named:
    """A name, and the last loader that had it."""

    __slots__ = ("alike", "data", "loader", "made", "name", "number")

    def __init__(self, alike, number):
        self.alike, self.number, self.name = alike, number, "loader/%d" % number
        self.loader = self.data = None
        self.made = 0

    def give(self, loader, dataset):
        """Give the name to a loader."""
        if self.alike.of_data.get(self.data) is self:
            del self.alike.of_data[self.data]
        self.alike.free.pop(self.number, None)
        self.loader, self.data = Watched(loader, _freed.append), id(dataset)
        self.loader.named = self
        self.alike.of_data[self.data] = self
        self.made += 1

    def is_of(self, dataset):
        """Return whether the loader is alive and over that dataset."""
        loader = self.loader()
        return loader is not None and static_access.own(loader).get("dataset") is dataset


class Watched(ref):
    """A weak reference to a loader, with the loader's name."""

    __slots__ = ("named",)


def install(torch):
    """Start recording."""
    _torch[:] = [torch]
    loader, iterator = torch.utils.data.DataLoader, torch.utils.data.dataloader._BaseDataLoaderIter
    instrument.instrument(
        torch,
        iterator.__next__,
        *(*_around_next(torch), ("self",)),
        known={
            "_perfwrap_passing_waits": paused_detail.passing_waits,
            "_perfwrap_no_waits": paused_detail.NO_WAITS,
            "_perfwrap_now": now,
        },
        phase="data",
        passing=PASSING,
    )
    _watch_starts(torch, loader)
    instrument.instrument(torch, loader.check_worker_number_rationality, _look_at, _pass, None, ("self",))
    journal.cover("probe/data_loader")


def _watch_torchdata(module):
    """Record torchdata's loader, which makes iterators of its own."""
    for torch in _torch:
        loader = getattr(module, "StatefulDataLoader", None)
        if "_get_iterator" in getattr(loader, "__dict__", {}):
            _watch_starts(torch, loader)


MODULES = {"torchdata.stateful_dataloader.stateful_dataloader": _watch_torchdata}


def _around_next(torch):
    begin_wait = guard.protect("data_loader", _begin)
    finish = guard.protect("data_loader", _finish_with(torch))
    finish_last = guard.protect("data_loader", _finish_last)
    close = guard.protect("data_loader", journal.close_call)
    push, pop = nvtx_ranges.of_phases(torch) or (None, None)

    def begin(iterator):
        start = now()
        if get_ident() in counting:
            return iterator, start, True, None
        ready = begin_wait(iterator, start)
        if push:
            push("data")
        return iterator, start, False, ready

    def end(state, data):
        iterator, start, is_rest, ready = state
        duration = now() - start
        if not is_rest and pop:
            pop()
        if is_rest and id(iterator) not in _fresh:
            known = _known(iterator)
            tally = known[3]
            tally.count_passed()
            tally.count += 1
            tally.duration += duration
            if tally.count >= tally.limit or start >= tally.due:
                paused_detail.ask()
            elif known[0] is not None and journal.step_kind() != journal_format.DATA:
                tally.let_waits_pass(iterator)
        else:
            finish(_getframe(1).f_back, iterator, start, duration, data, ready)

    def fail(state, error):
        if len(state) == 2:
            start, iterator = state
        else:
            iterator, start, is_rest, _ = state
            if not is_rest and pop:
                pop()
        if static_access.is_a(error, StopIteration):
            finish_last(_getframe(1).f_back, iterator, start, now() - start)
        else:
            close(journal_format.DATA)

    return begin, end, fail


def _begin(iterator, start):
    journal.end_step(journal_format.DATA, 0, start)
    journal.open_call(start, journal.text(_known(iterator)[1]), journal_format.DATA)
    return guard.run("ready_batches", ready_batches.look, iterator)


def _finish_with(torch):
    count_batch = batches.count_for(torch)

    def finish(frame, iterator, start, duration, data, ready):
        journal.close_call(journal_format.DATA)
        _, name, size, _ = _known(iterator)
        if ready is not None:
            guard.run("ready_batches", ready_batches.write, iterator, start, ready, name)
        write = journal.span
        if id(iterator) in _fresh:
            _fresh.discard(id(iterator))
            write = journal.rare_span
        write(start, duration, count_batch(data, size), label(name, frame), journal_format.DATA)
        if padding_facts.left["loader"] > 0:
            guard.run("padding_facts", padding_facts.note, torch, "loader", name, data)
        journal.own_work(start + duration)

    return finish


def _finish_last(frame, iterator, start, duration):
    journal.close_call(journal_format.DATA)
    journal.span(start, duration, 0, label(_known(iterator)[1], frame), journal_format.DATA_END)
    switching.begin_phase(start + duration)
    _note_beginning(iterator)


def _note_beginning(iterator):
    """Write the first wait of an epoch separately, even if others are only counted: a sum would hide it."""
    if journal.step_kind() != journal_format.DATA:
        if len(_fresh) >= KEPT:
            _fresh.clear()
        _fresh.add(id(iterator))
        paused_detail.passing_waits.pop(id(iterator), None)


def _watch_starts(torch, owner):
    begin_phase = guard.protect("data_loader_iterators", switching.begin_phase)
    finish_start = guard.protect("data_loader_iterators", _finish_start)

    def begin(loader):
        start = now()
        begin_phase(start)
        return loader, start

    def end(state, iterator):
        loader, start = state
        finish_start(loader, iterator, start, now() - start, _getframe(1).f_back)

    function = vars(owner)["_get_iterator"]
    instrument.instrument(torch, function, begin, end, None, ("self",), phase="loader_start")


def _look_at(loader):
    guard.run("data_loader_facts", _name_of, loader, _getframe(1).f_back)


def _pass(state, result):
    """Never called: ``begin`` returns no state."""


def _finish_start(loader, iterator, start, duration, frame):
    name = _name_of(loader, frame)
    named = _names.get(name)
    if named is not None:  # loaders over different data are different as long as the first was not used
        named.alike.free[named.number] = named
    size, workers = map(static_access.own(loader).get, ("batch_size", "num_workers"))
    size = size if type(size) is int else -1
    weak_table.note(_iterators, iterator, KEPT, name, size, find_tally(journal_format.DATA, name))
    workers = workers if type(workers) is int else 0
    journal.span(start, duration, workers, label(name, frame), journal_format.LOADER_START)
    _note_beginning(iterator)
    fetcher = static_access.own(iterator).get("_dataset_fetcher")
    if fetcher is not None and name != MORE:
        sampler = static_access.own(iterator).get("_index_sampler")
        guard.run("unchanged_items", unchanged_items.watch, fetcher, name, sampler)
    if at_start is not None:
        at_start(name, iterator)
    workers = static_access.own(iterator).get("_workers")
    if type(workers) is list and _next_start() <= MAX_STARTS:
        journal.fact(name + "/workers", " ".join(str(worker.pid) for worker in workers))


def _known(iterator):
    known = weak_table.find(_iterators, iterator)
    if known is not None:
        return known
    # Made by another _get_iterator, or before recording started.
    return CROWDED if len(_iterators) >= KEPT else STRANGER


def _name_of(loader, frame):
    """Return the name of a loader, and write its facts if it is new."""
    known = weak_table.find(_loaders, loader)
    if known is not None:
        return known[1]
    if len(_loaders) >= KEPT:
        return MORE
    facts = _facts_of(loader, frame)
    name = _name_for(loader, (str(facts), *_callers(frame)), facts)
    weak_table.note(_loaders, loader, KEPT, name)
    return name


def _name_for(loader, key, facts):
    """Return the name of the loader that this one replaces, or a new one."""
    while _freed:
        gone = _freed.pop()
        if gone.named.loader is gone:
            gone.named.alike.free[gone.named.number] = gone.named
    alike = _named.get(key)
    dataset = static_access.own(loader).get("dataset")
    if alike is not None:
        # Loaders over different data are different, though one line makes both, if the first was not used yet.
        found = alike.of_data.get(id(dataset))
        if found is None or not found.is_of(dataset):
            found = alike.free[min(alike.free)] if alike.free else None
        if found is not None:
            found.give(loader, dataset)
            if found.made == 2:
                journal.fact(found.name + "/made_again", True)
            return found.name
    number = _next_number()
    if number > MAX_LOADERS:
        return MORE
    found = Named(alike or _named.setdefault(key, Alike()), number)
    _names[found.name] = found
    found.give(loader, dataset)
    for fact, value in facts.items():
        journal.fact("%s/%s" % (found.name, fact), value)
    return found.name


def _callers(frame):
    """Return the places of the innermost frames: file, first line of the function, and line."""
    found = []
    while frame is not None and len(found) < CALLERS:
        code = frame.f_code
        found.append((code.co_filename, code.co_firstlineno, frame.f_lineno))
        frame = frame.f_back
    return found


def _facts_of(loader, frame):
    """Return the facts of a loader."""
    mine = static_access.own(loader)
    facts = {key: mine[key] for key in SETTINGS if static_access.has_type(mine.get(key), static_access.PLAIN)}
    if mine.get("batch_size") is None:
        size = static_access.own(mine.get("batch_sampler")).get("batch_size")
        if type(size) is int:
            facts["batch_size"] = size
    dataset = mine.get("dataset")
    facts["dataset"] = static_access.full_name(type(dataset))
    facts["sampler"] = static_access.full_name(type(mine.get("sampler")))
    facts["collate"] = static_access.name_of_callable(mine.get("collate_fn"))
    length = _length_of(dataset)
    if length is not None:
        facts["dataset_len"] = length

    # By its code, since reading f_locals of a running frame keeps all its variables alive up to Python 3.12.
    methods = static_access.codes_of(type(loader))

    def belongs_to_loader(frame):
        """Return whether a frame is a method of the loader itself: a subclass's ``__init__``."""
        return id(frame.f_code) in methods

    if roles.is_daemon():
        facts["daemon"] = True
    facts["created"] = find_place(frame, belongs_to_loader)
    return facts


def _length_of(dataset):
    """Return the number of samples of a dataset, None if the user's code would have to run."""
    kind = type(dataset)
    if static_access.has_type(dataset, SIZED) or static_access.full_name(kind) == "numpy.ndarray":
        return len(dataset)
    for torch in _torch:
        if kind is torch.Tensor:
            found = tensor_access.look(torch, batches.first_size, dataset)
            return found if type(found) is int else None
    mine, name = static_access.own(dataset), static_access.full_name(kind)
    if name == DATASETS + "Subset":
        return _length_of(mine.get("indices"))
    if name == DATASETS + "TensorDataset":
        tensors = mine.get("tensors")
        return _length_of(tensors[0]) if type(tensors) is tuple and tensors else None
    if name == DATASETS + "ConcatDataset":
        sizes = mine.get("cumulative_sizes")
        return sizes[-1] if type(sizes) is list and sizes and type(sizes[-1]) is int else None
    return None
