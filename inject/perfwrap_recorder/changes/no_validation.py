"""Ends evaluation loops over a DataLoader after the first batch: the upper limit of what less validation can gain.

Replaces ``_next_data`` of the loaders' iterators. A loop only evaluates if, since its last batch, models were
called, all of them in evaluation mode or without gradients, and no backward pass ran. A program that fetches a batch
in advance gets one or two more.
"""

from __future__ import annotations

from _weakref import ref
from sys import _getframe

from perfwrap_recorder import guard
from perfwrap_recorder.experiments import backward_calls
from perfwrap_recorder.instrumenting import wrapping
from perfwrap_recorder.probes.loop import forward

KEPT = 1000
"""Number of known iterators after which dead ones are removed."""


class Calls:
    """The number of calls of models so far."""

    trained = 0
    evaluated = 0


def install(torch, change):
    """End such loops early from now on."""
    backward_calls.install(torch)
    seen = {}  # id of an iterator -> (weak reference to it, what had been called when it gave its last batch)
    is_grad_enabled = torch.is_grad_enabled

    def watch(module, frame):
        if next(module.parameters(), None) is None:
            return
        if module.training and is_grad_enabled():
            Calls.trained += 1
        else:
            Calls.evaluated += 1

    def is_over(iterator, frame):
        known = seen.get(id(iterator))
        if known is None or known[0]() is not iterator:
            return False
        backwards, trained, evaluated = known[1]
        over = Calls.evaluated > evaluated and (backwards, trained) == (backward_calls.count, Calls.trained)
        if over:
            change.apply(frame, "each batch is evaluated", "the first one")
            del seen[id(iterator)]
        return over

    def remember(iterator):
        if len(seen) >= KEPT:
            for key in [key for key, known in seen.items() if known[0]() is None]:
                del seen[key]
        seen[id(iterator)] = ref(iterator), (backward_calls.count, Calls.trained, Calls.evaluated)

    def make(original, _):
        def wrapper(self):
            if guard.run(change.key, is_over, self, _getframe().f_back):
                raise StopIteration
            batch = original(self)
            guard.run(change.key, remember, self)
            return batch

        return wrapper

    forward.watchers.append(watch)
    data = torch.utils.data.dataloader
    for kind in (data._SingleProcessDataLoaderIter, data._MultiProcessingDataLoaderIter):
        wrapping.patch(torch, kind, "_next_data", make, over=True)
