"""Makes each DataLoader repeat its first batch: the upper limit of what faster data loading can gain.

Replaces ``_next_data`` of the loaders' iterators, ``_reset`` of those with workers, and
``DataLoader._get_iterator``: from the second epoch on no workers are started. An epoch has as many batches as before.
If the loader's length is unknown, batches are repeated as long as the program trains with them; a loop that only
evaluates gets its own batches.

Containers are new for each batch. A tensor that the program has changed in place is restored from a copy.
"""

from __future__ import annotations

import sys
from _weakref import ref
from sys import _getframe

from perfwrap_recorder import guard
from perfwrap_recorder.experiments import backward_calls
from perfwrap_recorder.instrumenting import wrapping

MAX_IDLE_LOADERS = 2
"""Batches without a backward pass that are repeated if the loader's length is unknown."""

PLAIN = (str, bytes, int, float, complex, bool, type(None))


class Kept:
    """The first batch of one loader."""

    def __init__(self, loader):
        self.loader = ref(loader)
        self.batch = None
        self.is_there = False
        self.copies = {}  # id of a tensor -> (tensor, its version, a copy)
        try:
            self.length = len(loader)
        except (TypeError, NotImplementedError):
            self.length = None


class Serving:
    """The progress of one iterator."""

    def __init__(self, iterator, kept):
        self.iterator = ref(iterator)
        self.kept = kept
        self.served = 0
        self.backwards = backward_calls.count
        self.idle = 0  # batches served since the last backward pass


_kept = {}  # id of a loader -> Kept
_serving = {}  # id of an iterator -> Serving


def install(torch, change):
    """Start to repeat first batches."""
    backward_calls.install(torch)
    data = torch.utils.data.dataloader

    class Repeating(data._SingleProcessDataLoaderIter):
        """The iterator of a loader whose first batch is known: it starts no workers."""

        __init__ = data._BaseDataLoaderIter.__init__

    for kind in (data._SingleProcessDataLoaderIter, data._MultiProcessingDataLoaderIter):
        wrapping.patch(torch, kind, "_next_data", _maker_of_next(torch, change), over=True)
    wrapping.patch(torch, data._MultiProcessingDataLoaderIter, "_reset", _make_reset, over=True)
    wrapping.patch(
        torch, torch.utils.data.DataLoader, "_get_iterator", _maker_of_start(change, Repeating), over=True
    )


def _maker_of_start(change, repeating):
    def make(original, _):
        def wrapper(self):
            kept = guard.run(change.key, _find, self)
            if kept is None:
                return original(self)
            iterator = repeating(self) if kept.is_there and kept.length is not None else original(self)
            _serving[id(iterator)] = Serving(iterator, kept)
            return iterator

        return wrapper

    return make


def _find(loader):
    """Return the Kept of a loader; None in a loader's worker."""
    if sys.modules["torch"].utils.data.get_worker_info() is not None:
        return None
    kept = _kept.get(id(loader))
    if kept is None or kept.loader() is not loader:
        for key in [key for key, old in _kept.items() if old.loader() is None]:
            del _kept[key]
        for key in [key for key, old in _serving.items() if old.iterator() is None]:
            del _serving[key]
        kept = _kept[id(loader)] = Kept(loader)
    return kept


def _make_reset(original, _):
    def wrapper(self, loader, first_iter=False):
        serving = _serving.get(id(self))
        if serving is None or serving.iterator() is not self or not serving.kept.is_there:
            return original(self, loader, first_iter)
        serving.served = self._num_yielded = 0
        if serving.kept.length is None:
            return original(self, loader, first_iter)
        return None

    return wrapper


def _maker_of_next(torch, change):
    def make(original, _):
        def wrapper(self):
            serving = _serving.get(id(self))
            if serving is None or serving.iterator() is not self:
                return original(self)
            kept = serving.kept
            if not kept.is_there:
                batch = original(self)
                guard.run(change.key, _keep, torch, kept, batch)
                serving.served = 1
                return batch
            if kept.length is not None and serving.served >= kept.length:
                raise StopIteration
            if kept.length is None and not _trains(serving):
                return original(self)
            found = guard.run(change.key, _serve, torch, change, serving, _getframe().f_back)
            return found[0] if found else original(self)

        return wrapper

    return make


def _keep(torch, kept, batch):
    def remember(value):
        if isinstance(value, torch.Tensor):
            kept.copies[id(value)] = value, value._version, value.clone()
        return value

    kept.batch = rebuilt(batch, remember)
    kept.is_there = True


def _serve(torch, change, serving, frame):
    kept = serving.kept

    def renew(value):
        known = kept.copies.get(id(value))
        if known is None or value._version == known[1]:
            return value
        fresh = known[2].clone()
        if value.is_cpu and any(getattr(torch.version, build, None) for build in ("cuda", "hip")):
            fresh = fresh.pin_memory() if value.is_pinned() else fresh
        kept.copies[id(fresh)] = fresh, fresh._version, known[2]
        del kept.copies[id(value)]
        return fresh

    kept.batch = rebuilt(kept.batch, renew)
    serving.served += 1
    change.apply(frame, "each batch is made", "the first batch again")
    return (rebuilt(kept.batch, lambda value: value),)


def _trains(serving):
    """Return whether there was a backward pass recently."""
    serving.idle = 0 if backward_calls.count != serving.backwards else serving.idle + 1
    serving.backwards = backward_calls.count
    return serving.idle <= MAX_IDLE_LOADERS


def rebuilt(value, change_leaf, depth=0):
    """Return a batch in new containers, each leaf replaced by ``change_leaf(leaf)``."""
    kind = type(value)
    if kind in PLAIN or depth > 8:
        return value
    if kind in (list, tuple):
        return kind([rebuilt(item, change_leaf, depth + 1) for item in value])
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return kind(*[rebuilt(item, change_leaf, depth + 1) for item in value])
    if kind is dict:
        return {key: rebuilt(item, change_leaf, depth + 1) for key, item in value.items()}
    if hasattr(value, "_version") and hasattr(value, "clone"):
        return change_leaf(value)
    return _copied(value, change_leaf, depth)


def _copied(value, change_leaf, depth):
    """Return a shallow copy of an object whose attributes may hold tensors; itself if it cannot be copied."""
    try:
        copied = sys.modules["copy"].copy(value)
        for name, held in list(getattr(copied, "__dict__", {}).items()):
            copied.__dict__[name] = rebuilt(held, change_leaf, depth + 1)
        if isinstance(copied, dict):
            for key, held in list(copied.items()):
                copied[key] = rebuilt(held, change_leaf, depth + 1)
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return value
    return copied
