"""The threads that are making a batch: what they do belongs to the batch, not to the training step.

A dataset reads and converts tensors several times per sample, usually all on the host, where none of it is recorded. So
not every batch is watched for it: of each dataset the first ones, then one in WATCH_EVERY, and again all of them after
one in which a device was used. Otherwise the methods of tensors in that thread only look into ``quiet``.
"""

from __future__ import annotations

from _thread import get_ident

WATCH_FIRST = 16
"""Batches of a dataset that are watched at first, and after each one in which a device was used."""

WATCH_EVERY = 16

MAX_DATASETS = 1000
"""Known datasets; beyond it all are dropped."""

busy = set()  # threads, and ids of fetchers, that are making a batch
quiet = set()  # threads of these whose methods of tensors are not watched
_watches = {}  # id of a dataset -> Watch
_current = {}  # thread -> Watch of the dataset whose batch it makes


class Watch:
    """Decides which batches of a dataset are watched."""

    __slots__ = ("begun", "left")

    def __init__(self):
        self.begun = 0
        self.left = WATCH_FIRST


def begin(thread, dataset):
    """Begin a batch of the dataset with that id."""
    watch = _watches.get(dataset)
    if watch is None:
        if len(_watches) >= MAX_DATASETS:
            _watches.clear()
        watch = _watches[dataset] = Watch()
    watch.begun += 1
    _current[thread] = watch
    busy.add(thread)
    if watch.left > 0:
        watch.left -= 1
    elif watch.begun % WATCH_EVERY:
        quiet.add(thread)


def end(thread):
    """End the batch, also one that failed."""
    busy.discard(thread)
    quiet.discard(thread)
    _current.pop(thread, None)


def note_device():
    """Note that this thread has used a device: if it makes a batch, those that follow are watched."""
    watch = _current.get(get_ident())
    if watch is not None:
        watch.left = WATCH_FIRST


def forget_other_threads():
    """Forget the other threads of the parent, in the child of a fork."""
    thread = {get_ident()}
    busy.intersection_update(thread)
    quiet.intersection_update(thread)
    for other in _current.keys() - thread:
        _current.pop(other, None)
