"""Times what a DataLoader's worker does besides making batches, and the thread that pins them.

Replaces ``_worker_loop`` and ``_pin_memory_loop``, torchdata's ``_worker_loop`` too, and hands them their queues
inside of objects that time ``get`` and ``put``. The queues themselves stay untouched. No frame of this file is in
the traceback of what a dataset raises.
"""

from __future__ import annotations

from perfwrap_recorder import batches, guard, journal, journal_format, wrapping
from perfwrap_recorder.clock import now
from perfwrap_recorder.probes import fetching
from perfwrap_recorder.rest import resting

IDLE, PIN = journal_format.IDLE, journal_format.PIN

WORKER_SHARE = 16
"""A worker keeps to one part in so many of the budget: there are many, and little is asked of them."""

TORCHDATA = "torchdata.stateful_dataloader."

ERRORS = ("ExceptionWrapper", "_ResumeIteration")
"""Classes of torch's that travel to the pinning thread and are no batches."""

_torch = []  # the module, once it is there
_began = []  # when the loop of this worker began, until it first asks for an order


def install(torch):
    """Watch from now on."""
    _torch[:] = [torch]
    parts = torch.utils.data._utils
    wrapping.patch(torch, parts.worker, "_worker_loop", _make_worker_loop)
    if hasattr(parts.pin_memory, "_pin_memory_loop"):
        make = _make_pin_memory_loop(guard.protect("batch_bytes", batches.weigh_for(torch)))
        wrapping.patch(torch, parts.pin_memory, "_pin_memory_loop", make)
    journal.cover("probe/loader_workers")


def _watch_torchdata(module):
    """Watch the workers of torchdata's loader, under each name that its two modules have for their loop."""
    for torch in _torch:
        wrapping.patch(torch, module, "_worker_loop", _make_worker_loop)


MODULES = {TORCHDATA + "worker": _watch_torchdata, TORCHDATA + "stateful_dataloader": _watch_torchdata}


def _make_worker_loop(original, _, __):
    names = original.__code__.co_varnames[: original.__code__.co_argcount]

    def wrapper(*arguments, **options):
        arguments = guard.run("loader_workers", _begin_worker, names, arguments) or arguments
        try:
            return original(*arguments, **options)
        finally:
            guard.run("loader_workers", fetching.end_worker)

    return wrapper


def _begin_worker(names, arguments):
    """Say who this process is; return the arguments with the queue of orders inside of a timer."""
    moment = now()
    journal.fact("role", "worker")
    journal.reduce_budget(WORKER_SHARE)
    fetching.begin_worker()
    given = {name: arguments[place] for place, name in enumerate(names[: len(arguments)])}
    if type(given.get("worker_id")) is int:
        journal.fact("worker_id", given["worker_id"])
    _began[:] = [moment]
    if "index_queue" not in given:
        return arguments
    place = names.index("index_queue")
    return arguments[:place] + (Orders(arguments[place]),) + arguments[place + 1 :]


class Orders:
    """A worker's queue of orders, timed."""

    def __init__(self, queue):
        self._queue = queue
        self._get = queue.get

    def __getattr__(self, name):
        return getattr(self._queue, name)

    def get(self, *arguments, **options):
        """Return the next order."""
        if _began:
            guard.run("loader_workers", _finish_start)
        if IDLE in resting:
            return self._get(*arguments, **options)
        start = now()
        try:
            return self._get(*arguments, **options)
        finally:
            guard.run("loader_workers", _finish_wait, start)


def _finish_start():
    start = _began.pop()
    journal.span(start, now() - start, 0, journal.text("worker"), journal_format.LOADER_START)


def _finish_wait(start):
    journal.span(start, now() - start, 0, journal.text("worker"), IDLE)


def _make_pin_memory_loop(weigh):
    def make(original, _, __):
        def wrapper(in_queue, out_queue, *arguments, **options):
            found = guard.run("pinning", _timed, in_queue, out_queue, weigh) or (in_queue, out_queue)
            return original(*found, *arguments, **options)

        return wrapper

    return make


def _timed(unpinned, pinned, weigh):
    timer = Pinning(unpinned, pinned, weigh)
    return Unpinned(timer), Pinned(timer)


class Pinning:
    """When the pinning thread took the batch that it has at hand."""

    __slots__ = ("began", "pinned", "unpinned", "weigh")

    def __init__(self, unpinned, pinned, weigh):
        self.unpinned, self.pinned, self.weigh = unpinned, pinned, weigh
        self.began = 0

    def finish(self, item):
        """Write what it took to pin a batch, which goes on its way now."""
        start, self.began = self.began, 0
        batch = item[1] if type(item) is tuple and len(item) == 2 else None
        if batch is not None and type(batch).__name__ not in ERRORS:
            duration = now() - start
            size = self.weigh(batch)
            size = batches.UNKNOWN if size is None else size
            journal.span(start, duration, size, journal.text("pin_memory"), PIN)


class Unpinned:
    """The queue from which the pinning thread takes batches."""

    def __init__(self, timer):
        self._timer = timer

    def __getattr__(self, name):
        return getattr(self._timer.unpinned, name)

    def get(self, *arguments, **options):
        """Return the next batch."""
        timer = self._timer
        item = timer.unpinned.get(*arguments, **options)
        timer.began = 0 if PIN in resting else now()
        return item


class Pinned:
    """The queue into which the pinning thread puts them."""

    def __init__(self, timer):
        self._timer = timer

    def __getattr__(self, name):
        return getattr(self._timer.pinned, name)

    def put(self, item, *arguments, **options):
        """Pass a batch on."""
        timer = self._timer
        if timer.began:
            guard.run("pinning", timer.finish, item)
        return timer.pinned.put(item, *arguments, **options)
