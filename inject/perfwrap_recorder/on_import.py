"""Call functions when the program imports a module.

The shim runs this file when torch is first searched for, while Python may hold its import lock: it must not
import anything that is not already loaded in every interpreter (so no ``from __future__`` either). The recorder
itself is loaded when torch's code is about to run: a program that only checks whether torch exists never gets
that far.

An awaited module is found by the finders after ours; ``importlib.util.find_spec`` would import its parents again,
which can deadlock. Python's own three loaders get an ``exec_module`` for one execution, which leaves no trace; any
other loader is wrapped, and restored before the module runs.
"""

import sys
from _frozen_importlib_external import ExtensionFileLoader, SourceFileLoader, SourcelessFileLoader
from _thread import get_ident

PYTHON_LOADERS = (SourceFileLoader, SourcelessFileLoader, ExtensionFileLoader)
IMPORT_SYSTEM = "<frozen importlib._bootstrap_external>"
"""Python cuts frames of code with this file name out of the tracebacks of failing imports."""

_finders = {}  # name of a module -> function(name, path, target) that returns its spec
_before = {}  # name of a module -> functions() to call before its code runs
_after = {}  # name of a module -> pairs [function(module), id of the module that it last got]
_searches = set()  # (thread, name) of the searches in progress: they must not find themselves
_running = []  # names of the modules whose code runs at present
_shim = {}  # the shim's functions and paths: data, run_folder, load, note, quietly


class Finder:
    """The recorder's one entry in sys.meta_path."""

    @staticmethod
    def find_spec(name, path=None, target=None, finders=_finders):
        """Return the spec of an awaited module or of one of the recorder's own, None for any other."""
        if name not in finders:
            return None
        return finders[name](name, path, target)


def take_over(shim_finder, **lent):
    """Replace the shim's finder; called twice if two threads race."""
    _shim.update(lent)
    if not _finders:
        _finders["torch"] = _find_awaited
        _before["torch"] = [start]
    sys.meta_path[:] = [Finder if finder is shim_finder else finder for finder in sys.meta_path]


def start():
    """Load and start the recorder, once; if that fails there is a line in the run folder and no recorder."""
    if start in _before["torch"]:
        _before["torch"].remove(start)
        _shim["quietly"](_start_recorder)


def start_again():
    """Have a detached recorder record into the run folder of the calling shim."""
    _shim["load"]("own_modules").start_again(_shim["data"], _shim["run_folder"])


def note(event):
    """Append one line about this process to the run folder."""
    _shim["quietly"](_shim["note"], event)


def before(name, function):
    """Call ``function()`` each time before the module's code runs; it must not raise."""
    _before.setdefault(name, []).append(function)
    _finders.setdefault(name, _find_awaited)


def after(name, function):
    """Call ``function(module)`` each time the module's code has run, and at once if it has.

    The function must not raise.
    """
    _after.setdefault(name, []).append([function, None])
    _finders.setdefault(name, _find_awaited)
    _catch_up()


def _hide(function):
    """Keep the function out of the tracebacks of failing imports."""
    function.__code__ = function.__code__.replace(co_filename=IMPORT_SYSTEM)
    return function


@_hide
def _run(name, execute, module):
    """Have a module's code run between what waits for it."""
    _running.append(name)
    try:
        for function in list(_before.get(name, ())):
            function()
        execute(module)
    finally:
        _running.remove(name)
    _has_run(name, module)


def _has_run(name, module):
    module = sys.modules.get(name, module)
    pairs = list(_after.get(name, ()))
    for pair in pairs:
        pair[1] = id(module)
    _catch_up()
    for function, _ in pairs:
        function(module)


def _catch_up():
    """Call what waits for modules that were imported otherwise: before this file, or by a finder before ours."""
    for name, pairs in list(_after.items()):
        module = imported(name)
        for pair in pairs if module else ():
            if pair[1] != id(module):
                pair[1] = id(module)
                pair[0](module)


def imported(name):
    """Return the imported module, None while it is being imported or is yet to be (a lazy one)."""
    module = sys.modules.get(name)
    # Reading an attribute of a LazyLoader module would load it.
    if name in _running or not isinstance(module, type(sys)) or type(module).__name__ == "_LazyModule":
        return None
    return None if getattr(getattr(module, "__spec__", None), "_initializing", False) else module


def _find_awaited(name, path, target):
    """Return the spec that the finders after ours have for the module, changed to call us when it runs."""
    search = get_ident(), name
    if search in _searches:
        return None
    _searches.add(search)
    try:
        spec = _ask_others(name, path, target)
    finally:
        _searches.discard(search)
    if spec is not None and hasattr(spec.loader, "exec_module"):
        _watch(spec)
    return spec


def _ask_others(name, path, target):
    finders = list(sys.meta_path)
    if Finder in finders:
        del finders[: finders.index(Finder) + 1]
    for finder in finders:
        if hasattr(finder, "find_spec"):
            spec = finder.find_spec(name, path, target)
        else:  # a finder of the kind that Python 3.12 removed
            spec = sys.modules["_frozen_importlib"]._find_spec_legacy(finder, name, path)
        if spec is not None:
            return spec
    return None


def _watch(spec):
    loader = spec.loader
    if type(loader) in PYTHON_LOADERS and "exec_module" not in vars(loader):
        loader.exec_module = _exec_once(loader, spec.name)
    else:
        spec.loader = _WatchedLoader(loader, spec)


def _exec_once(loader, name):
    """Return an ``exec_module`` that first removes itself from the loader."""

    def exec_module(module):
        loader.__dict__.pop("exec_module", None)
        _run(name, loader.exec_module, module)

    return _hide(exec_module)


class _WatchedLoader:
    """Replaces another loader until the module runs."""

    def __init__(self, loader, spec):
        self._perfwrap_loader = loader
        self._perfwrap_spec = spec

    def __getattr__(self, name):
        if name.startswith("_perfwrap"):  # a copy being made, whose own attributes are not there yet
            raise AttributeError(name)
        return getattr(self._perfwrap_loader, name)

    @_hide
    def exec_module(self, module):
        """Restore the real loader, then have it run the module."""
        loader, name = self._perfwrap_loader, self._perfwrap_spec.name
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = loader
        for spec in (self._perfwrap_spec, getattr(module, "__spec__", None)):
            if getattr(spec, "loader", None) is self:
                spec.loader = loader
        _run(name, loader.exec_module, module)


def _start_recorder():
    _shim["load"]("own_modules").start(_finders, _shim["data"], _shim["run_folder"])
