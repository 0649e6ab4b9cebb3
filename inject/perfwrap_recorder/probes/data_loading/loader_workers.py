"""Times what a DataLoader's worker does besides making batches, and the thread that pins them.

Instruments ``_worker_loop`` and ``_pin_memory_loop``, also torchdata's ``_worker_loop``, and passes them their queues
inside objects that time ``get`` and ``put``. The queues themselves are not changed.

In a worker only data loading is recorded: the methods of tensors are torch's own there, and the phases of training are
switched off.
"""

from __future__ import annotations

from perfwrap_recorder import guard, journal_format
from perfwrap_recorder.clock import now
from perfwrap_recorder.instrumenting import instrument, tensor_methods
from perfwrap_recorder.journal import journal, lifecycle, paused_detail
from perfwrap_recorder.journal.paused_detail import paused
from perfwrap_recorder.probes.data_loading import fetching
from perfwrap_recorder.program import batches

IDLE, PIN = journal_format.IDLE, journal_format.PIN

WORKER_SHARE = 16
"""A worker uses at most this part of the budget: there are many, and they record little."""

TORCHDATA = "torchdata.stateful_dataloader."

OF_LOADING = {
    journal_format.DATA,
    journal_format.FETCH,
    journal_format.GETITEM,
    journal_format.COLLATE,
    IDLE,
    PIN,
}
"""The kinds of spans that a worker records."""

ERRORS = ("ExceptionWrapper", "_ResumeIteration")
"""Classes of torch whose objects go to the pinning thread and are no batches."""

_torch = []  # the module, once it is imported
_began = []  # when the loop of this worker began, until it first waits for an order


def install(torch):
    """Start recording."""
    _torch[:] = [torch]
    parts = torch.utils.data._utils
    _watch_loop(torch, parts.worker._worker_loop)
    begin = _begin_pinning_with(guard.protect("batch_bytes", batches.weigh_for(torch)))
    queues = ("in_queue", "out_queue")
    loop = getattr(parts.pin_memory, "_pin_memory_loop", None)
    instrument.instrument(torch, loop, begin, _pass, None, queues, rebind=queues)
    journal.cover("probe/loader_workers")


def _watch_torchdata(module):
    """Record the workers of torchdata's loader."""
    for torch in _torch:
        _watch_loop(torch, getattr(module, "_worker_loop", None))


MODULES = {TORCHDATA + "worker": _watch_torchdata}


def _watch_loop(torch, loop):
    def begin(worker_id, queue):
        return (guard.run("loader_workers", _begin_worker, worker_id, queue) or queue,)

    def end(state, result):
        guard.run("loader_workers", fetching.end_worker)

    values = ("worker_id", "index_queue")
    instrument.instrument(torch, loop, begin, end, end, values, rebind=("index_queue",))


def _begin_worker(worker_id, queue):
    """Write the role of this process, and return its queue of orders inside a timer."""
    moment = now()
    tensor_methods.uninstall()
    paused_detail.switch_off(paused_detail.PAUSABLE - OF_LOADING)
    journal.fact("role", "worker")
    lifecycle.reduce_budget(WORKER_SHARE)
    fetching.begin_worker()
    if type(worker_id) is int:
        journal.fact("worker_id", worker_id)
    _began[:] = [moment]
    return Orders(queue)


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
        if IDLE in paused:
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


def _begin_pinning_with(weigh):
    def begin(in_queue, out_queue):
        return guard.run("pinning", _timed, in_queue, out_queue, weigh)

    return begin


def _pass(state, result):
    """Nothing to do at the end of the loop."""


def _timed(unpinned, pinned, weigh):
    timer = Pinning(unpinned, pinned, weigh)
    return Unpinned(timer), Pinned(timer)


class Pinning:
    """When the pinning thread took its current batch."""

    __slots__ = ("began", "pinned", "unpinned", "weigh")

    def __init__(self, unpinned, pinned, weigh):
        self.unpinned, self.pinned, self.weigh = unpinned, pinned, weigh
        self.began = 0

    def finish(self, item):
        """Write the time of pinning a batch, which is passed on now."""
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
        timer.began = 0 if PIN in paused else now()
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
