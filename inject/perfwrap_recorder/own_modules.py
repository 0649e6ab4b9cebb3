"""Load the recorder's modules from source, under names in angle brackets, and start the recorder.

Coverage and similar tools do not count code with such a file name, and an ordinary import would put the path of
the file into the code. No byte code is written.
"""

import os
import sys
from _frozen_importlib import ModuleSpec

PACKAGE = "perfwrap_recorder"

_sources = {}  # name of a module -> path of its source


def start(finders, data, run_folder):
    """Make the recorder's modules importable by a table of finders, and start the recorder."""
    finders.update(dict.fromkeys(serve(data), find))
    from perfwrap_recorder import settings, start  # only here: before, no finder knows them

    start.start(settings.read(data, run_folder))


def start_again(data, run_folder):
    """Start a recorder that has ended once more, with settings and sources of another run."""
    from perfwrap_recorder import settings, start  # they are loaded already

    serve(data)
    start.start_again(settings.read(data, run_folder))


def serve(data):
    """Find the modules and return their names; ``data`` is the folder of the package."""
    _note_sources(PACKAGE, os.path.join(data, PACKAGE))
    for name in _sources:
        if name in sys.modules:  # the shim has loaded it before
            sys.modules[name].__spec__ = find(name)
            _remember_source(name)
    return list(_sources)


def find(name, path=None, target=None):
    """Return the spec of one of the recorder's modules."""
    package = _sources[name].endswith("__init__.py")
    return ModuleSpec(name, SourceLoader, origin=_file_name(name), is_package=package)


class SourceLoader:
    """Loads one of the recorder's modules."""

    @staticmethod
    def create_module(spec):
        """Let Python create the module."""

    @staticmethod
    def exec_module(module):
        """Run the module's source."""
        name = module.__spec__.name
        exec(compile(_remember_source(name), _file_name(name), "exec"), module.__dict__)  # nosec B102 # a file of ours


def _note_sources(package, folder):
    for entry in os.listdir(folder):
        path = os.path.join(folder, entry)
        if entry == "__init__.py":
            _sources[package] = path
        elif entry.endswith(".py"):
            _sources[package + "." + entry[:-3]] = path
        elif os.path.isdir(path):
            _note_sources(package + "." + entry, path)


def _remember_source(name):
    """Return a module's source, and keep it for tracebacks and ``inspect.getsource``."""
    import linecache  # not loaded in every interpreter, but torch loads it too

    with open(_sources[name], encoding="utf-8") as file:
        source = file.read()
    linecache.cache[_file_name(name)] = len(source), None, source.splitlines(True), _file_name(name)
    return source


def _file_name(name):
    return "<perfwrap:%s>" % (name[len(PACKAGE) + 1 :] or "recorder")
