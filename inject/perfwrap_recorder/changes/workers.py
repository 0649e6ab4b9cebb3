"""Sets ``num_workers`` of each DataLoader.

Refuses if workers would change results or fail: an iterable dataset that does not divide itself among workers gives
each sample once per worker; a dataset that holds tensors on a GPU cannot be read in a forked process; a daemon may have
no children; what spawned workers get must be picklable. An iterable dataset counts as dividing itself if its class,
what it holds or ``worker_init_fn`` uses ``get_worker_info``, or if the program has several workers already.
"""

from __future__ import annotations

import io
import sys

from perfwrap_recorder import roles
from perfwrap_recorder.experiments import loader_arguments

MAX_DEPTH, MAX_ITEMS = 4, 2000
"""Depth and number of objects that are searched for a use of ``get_worker_info``."""

ASKED = "get_worker_info"

FUNCTION = type(lambda: 0)
CODE = type((lambda: 0).__code__)
PLAIN = (str, bytes, int, float, complex, bool, type(None))

WITHOUT_WORKERS = ("prefetch_factor", "multiprocessing_context", "timeout", "persistent_workers")
"""Arguments that a loader without workers must not have."""


def install(torch, change):
    """Make each loader with this many workers."""
    wanted = int(change.value)

    def adjust(making):
        if making.get("num_workers") == wanted:
            return
        reason = find_reason(torch, making, wanted)
        if reason:
            change.refuse(reason)
            return
        making.set(change, "num_workers", wanted)
        if not wanted:
            for name in WITHOUT_WORKERS:
                making.given.pop(name, None)

    loader_arguments.add(torch, change, adjust)


def find_reason(torch, making, wanted):
    """Return why the loader must not have this many workers, "" if it may."""
    dataset, present = making.given["dataset"], making.get("num_workers")
    if not wanted:
        return ""
    if roles.is_daemon():
        return "the process that makes the loader is a daemon, which may have no children"
    if isinstance(dataset, torch.utils.data.IterableDataset) and wanted > 1 and present < 2:
        if not mentions(dataset, ASKED) and not mentions(making.given.get("worker_init_fn"), ASKED):
            return (
                "%s is an iterable dataset that does not divide itself among workers (get_worker_info): "
                "each worker would give the same samples" % type(dataset).__name__
            )
    if any(_is_on_gpu(torch, value) for value in _held_by(dataset)):
        return "the dataset holds tensors on a GPU, which workers cannot read"
    if not present and not _is_forked(making):
        return _find_what_pickle_says(making)
    return ""


def mentions(thing, name):
    """Return whether the code of a function, or of an object's class or of what it holds, uses that name."""
    seen = set()
    things = [(thing, 0)]
    while things and len(seen) < MAX_ITEMS:
        thing, depth = things.pop()
        if id(thing) in seen or isinstance(thing, PLAIN):
            continue
        seen.add(id(thing))
        thing = getattr(thing, "__func__", thing) if type(thing).__name__ == "method" else thing
        if isinstance(thing, FUNCTION):
            names = _names_in(thing.__code__)
            if name in names:
                return True
            inner = [thing.__globals__.get(word) for word in names]
            inner = [
                found
                for found in inner
                if isinstance(found, FUNCTION) and found.__module__ == thing.__module__
            ]
        else:
            inner = _functions_of(type(thing)) + _held_by(thing)
        if depth < MAX_DEPTH:
            things += [(found, depth + 1) for found in inner]
    return False


def _names_in(code):
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CODE):
            found |= _names_in(constant)
    return found


def _functions_of(kind):
    """Return the functions of a class and its bases, except those of torch, Python and C."""
    found = []
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] not in ("torch", "builtins", "typing", "abc", "collections"):
            found += [value for value in vars(base).values() if isinstance(value, FUNCTION)]
    return found


def _held_by(thing):
    """Return the contents of an object or a plain container."""
    if type(thing) in (list, tuple, set):
        return list(thing)[:MAX_ITEMS]
    if type(thing) is dict:
        return list(thing.values())[:MAX_ITEMS]
    held = getattr(thing, "__dict__", None)
    return list(held.values())[:MAX_ITEMS] if type(held) is dict and not isinstance(thing, type) else []


def _is_on_gpu(torch, value):
    values = value if type(value) in (list, tuple) else [value]
    return any(type(one) is torch.Tensor and one.is_cuda for one in values[:MAX_ITEMS])


def _is_forked(making):
    context = making.given.get("multiprocessing_context")
    if isinstance(context, str):
        return context == "fork"
    context = context or sys.modules["multiprocessing"]
    return context.get_start_method() == "fork"


class Sink(io.RawIOBase):
    """A file that keeps nothing."""

    def writable(self):
        """Take all."""
        return True

    def write(self, data):
        """Forget it."""
        return len(data)


def _find_what_pickle_says(making):
    """Return why spawned workers could not get what they need, "" if they can."""
    pickler = sys.modules["multiprocessing"].reduction.ForkingPickler(Sink())
    try:
        for name in ("dataset", "collate_fn", "worker_init_fn", "batch_sampler", "sampler"):
            pickler.dump(making.given.get(name))
    except (
        AttributeError,
        TypeError,
        ValueError,
        RuntimeError,
        sys.modules["pickle"].PicklingError,
    ) as error:
        return "workers would be spawned, and what they need cannot be pickled: %s" % error
    return ""
