"""Times the wait for each batch of each DataLoader in the main process, and says how the loader is set up.

Instruments ``_BaseDataLoaderIter.__next__``, ``DataLoader._get_iterator`` (which starts the workers; that of
torchdata's ``StatefulDataLoader`` too) and ``DataLoader.check_worker_number_rationality`` (with which
``DataLoader.__init__`` ends: the line that made the loader is known there). Loaders and iterators keep their types and
attributes.
"""

from __future__ import annotations

from _thread import get_ident
from _weakref import ref
from itertools import count
from sys import _getframe

from perfwrap_recorder import batches, guard, instrument, journal, journal_format, ranges, ready_batches, rest
from perfwrap_recorder.clock import now
from perfwrap_recorder.probes import padding_facts
from perfwrap_recorder.rest import counting, find_tally
from perfwrap_recorder.source_lines import find_place, label

MAXIMUM_LOADERS = 200
"""How many loaders are told apart."""

CALLERS = 8
"""How many frames tell where a loader was made: those that a program makes anew for each epoch share one name."""

KEPT = 1000
"""Known iterators, and loaders, after which those that are gone are forgotten."""

MAXIMUM_STARTS = 1000
"""How often it is said which processes are the workers of a loader."""

SETTINGS = ("num_workers", "batch_size", "pin_memory", "drop_last", "prefetch_factor", "persistent_workers")

SIZED_MODULE = "torch.utils.data.dataset"
SIZED = ("ConcatDataset", "Subset", "TensorDataset")
"""Datasets of torch's whose length costs nothing; any other's would have to be asked of the user's code."""

STRANGER = None, "loader", -1, find_tally(journal_format.DATA, "loader")
"""Stands for an iterator of which nothing is known."""

_next_number = count(1).__next__
_next_start = count(1).__next__
_torch = []  # the module, once it is there
_loaders = {}  # id of a DataLoader -> (weak reference to it, name)
_named = {}  # what is known of a loader when it is made, and where -> [[weak reference to the last, name, how many]]
_used = set()  # names of loaders of which the last one made was iterated over
_iterators = {}  # id of an iterator -> (weak reference to it, name of its loader, batch size or -1, tally)
_fresh = set()  # ids of iterators of which the next batch is the first of an epoch


def install(torch):
    """Watch from now on."""
    _torch[:] = [torch]
    loader, iterator = torch.utils.data.DataLoader, torch.utils.data.dataloader._BaseDataLoaderIter
    instrument.instrument(torch, iterator.__next__, *_around_next(torch), ("self",), phase="data")
    _watch_starts(torch, loader)
    instrument.instrument(torch, loader.check_worker_number_rationality, _look_at, _pass, None, ("self",))
    journal.cover("probe/data_loader")


def _watch_torchdata(module):
    """Watch the loader of torchdata's that makes iterators of its own."""
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
    push, pop = ranges.of_phases(torch) or (None, None)

    def begin(iterator):
        start = now()
        is_rest = get_ident() in counting
        ready = None if is_rest else begin_wait(iterator, start)
        if push:
            push("data")
        return iterator, start, is_rest, ready

    def end(state, data):
        iterator, start, is_rest, ready = state
        duration = now() - start
        if pop:
            pop()
        if is_rest and id(iterator) not in _fresh:
            tally = _known(iterator)[3]
            tally.count += 1
            tally.duration += duration
            if tally.count >= tally.limit or start >= tally.due:
                rest.ask()
        else:
            finish(_getframe(1).f_back, iterator, start, duration, data, ready)

    def fail(state, error):
        iterator, start, _, _ = state
        if pop:
            pop()
        if isinstance(error, StopIteration):
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
            guard.run("ready_batches", ready_batches.tell, iterator, start, ready, name)
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
    journal.begin_phase(start + duration)
    _note_beginning(iterator)


def _note_beginning(iterator):
    """Have the first wait of an epoch written by itself though others are only counted: no sum would tell it."""
    if journal.step_kind() != journal_format.DATA:
        if len(_fresh) >= KEPT:
            _fresh.clear()
        _fresh.add(id(iterator))


def _watch_starts(torch, owner):
    begin_phase = guard.protect("data_loader_iterators", journal.begin_phase)
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
    """Never comes: what begins returns nothing."""


def _finish_start(loader, iterator, start, duration, frame):
    name = _name_of(loader, frame)
    if len(_iterators) >= KEPT:
        _forget_gone(_iterators)
    _used.add(name)
    size = loader.batch_size if type(loader.batch_size) is int else -1
    _iterators[id(iterator)] = ref(iterator), name, size, find_tally(journal_format.DATA, name)
    journal.span(start, duration, loader.num_workers, label(name, frame), journal_format.LOADER_START)
    _note_beginning(iterator)
    workers = vars(iterator).get("_workers")
    if type(workers) is list and _next_start() <= MAXIMUM_STARTS:
        journal.fact(name + "/workers", " ".join(str(worker.pid) for worker in workers))


def _known(iterator):
    known = _iterators.get(id(iterator))
    # Made by somebody else's _get_iterator, or before we were there.
    return known if known and known[0]() is iterator else STRANGER


def _name_of(loader, frame):
    """Return the name of a loader, and say what it is when it is new."""
    known = _loaders.get(id(loader))
    if known and known[0]() is loader:
        return known[1]
    facts = _facts_of(loader, frame)
    name = _name_for(loader, (str(facts), *_callers(frame)), facts)
    if len(_loaders) >= KEPT:
        _forget_gone(_loaders)
    _loaders[id(loader)] = ref(loader), name
    return name


def _name_for(loader, key, facts):
    """Return the name of the loader that this one is made in the place of, a new one where it is none's."""
    alike = _named.get(key, ())
    for known in alike:
        before = known[0]()
        # Two over different data, of which the first still waits to be used, are two though one line makes both.
        if before is None or before.dataset is loader.dataset or known[1] in _used:
            _used.discard(known[1])
            known[0] = ref(loader)
            known[2] += 1
            if known[2] == 2:
                journal.fact(known[1] + "/made_again", True)
            return known[1]
    number = _next_number()
    if number > MAXIMUM_LOADERS:
        return "loader/more"
    name = "loader/%d" % number
    _named[key] = [*alike, [ref(loader), name, 1]]
    for fact, value in facts.items():
        journal.fact("%s/%s" % (name, fact), value)
    return name


def _callers(frame):
    """Return where the program is, as code and line of the innermost frames."""
    found = []
    while frame is not None and len(found) < CALLERS:
        found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return found


def _forget_gone(known):
    for key in [key for key, value in list(known.items()) if value[0]() is None]:
        del known[key]


def _facts_of(loader, frame):
    """Return what there is to say about a loader."""
    settings = ((key, getattr(loader, key, None)) for key in SETTINGS)
    facts = {key: value for key, value in settings if value is not None}
    if loader.batch_size is None and type(getattr(loader.batch_sampler, "batch_size", None)) is int:
        facts["batch_size"] = loader.batch_sampler.batch_size
    kind = type(loader.dataset)
    facts["dataset"] = _class_name(kind)
    facts["sampler"] = _class_name(type(loader.sampler))
    facts["collate"] = _class_name(loader.collate_fn)
    if kind.__module__ == "builtins" or (kind.__module__ == SIZED_MODULE and kind.__name__ in SIZED):
        facts["dataset_len"] = len(loader.dataset)

    def belongs_to_loader(frame):
        """Say whether a frame is a method of the loader itself: a subclass's ``__init__``."""
        code = frame.f_code
        return code.co_argcount > 0 and frame.f_locals.get(code.co_varnames[0]) is loader

    facts["created"] = find_place(frame, belongs_to_loader)
    return facts


def _class_name(thing):
    """Return the whole name of a class or function, or of the class of anything else."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return "%s.%s" % (named.__module__, named.__qualname__)
