"""Changes the arguments with which DataLoaders are made, for experiments with loaders.

Replaces ``DataLoader.__init__`` (and that of torchdata's ``StatefulDataLoader``), once for all changes. Loaders that
are made in a loader's worker are not changed.
"""

from __future__ import annotations

from sys import _getframe

from perfwrap_recorder import guard, on_import, static_access
from perfwrap_recorder.instrumenting import wrapping

STATEFUL = "torchdata.stateful_dataloader.stateful_dataloader"

DEFAULTS = {
    "batch_size": 1,
    "num_workers": 0,
    "prefetch_factor": None,
    "pin_memory": False,
    "persistent_workers": False,
}

_adjusters = []  # functions(making), in the order in which they are called


class Making:
    """A loader that is being made: ``given`` holds its arguments by their names."""

    def __init__(self, torch, loader, given, frame):
        self.torch = torch
        self.loader = loader
        self.given = given
        self.frame = frame
        self._methods = static_access.codes_of(type(loader))

    def get(self, name):
        """Return an argument, or its default if it was not given."""
        return self.given.get(name, DEFAULTS.get(name))

    def set(self, change, name, value):
        """Replace an argument and report it, unless it had that value."""
        before = self.get(name)
        if before != value:
            self.given[name] = value
            change.apply(self.frame, "%s=%r" % (name, before), "%s=%r" % (name, value), self.is_inside)

    def is_inside(self, frame):
        """Return whether a frame is a method of the loader itself: a subclass's ``__init__``."""
        return id(frame.f_code) in self._methods


def add(torch, change, adjust):
    """Call ``adjust(making)`` before each loader is made; if it raises, only this change is switched off."""
    if not _adjusters:
        _patch(torch, torch.utils.data.DataLoader)
        on_import.after(
            STATEFUL,
            guard.protect("loader_arguments", lambda module: _patch(torch, module.StatefulDataLoader)),
        )
    _adjusters.append(guard.protect(change.key, adjust))


def _patch(torch, owner):
    if "__init__" not in vars(owner):
        return
    code = wrapping.innermost(owner.__init__).__code__
    names = code.co_varnames[1 : code.co_argcount]

    def make(original, _):
        def wrapper(self, *arguments, **options):
            found = guard.run(
                "loader_arguments", _adjusted, torch, self, names, arguments, options, _getframe().f_back
            )
            if found is None:
                return original(self, *arguments, **options)
            return original(self, **found)

        return wrapper

    wrapping.patch(torch, owner, "__init__", make, over=True)


def _adjusted(torch, loader, names, arguments, options, frame):
    """Return the changed arguments by their names; None if they are not changed."""
    if len(arguments) > len(names) or set(names[: len(arguments)]) & set(options):
        return None  # the call fails anyway
    if "dataset" not in options and not arguments:
        return None
    if torch.utils.data.get_worker_info() is not None:
        return None
    given = dict(zip(names, arguments))  # noqa: B905 - Python 3.8
    making = Making(torch, loader, {**given, **options}, frame)
    for adjust in _adjusters:
        adjust(making)
    return making.given
