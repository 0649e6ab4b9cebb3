"""Load the recorder's modules from source, under names in angle brackets.

Coverage and its kin leave code with such a file name out of the program's figures, and an ordinary import
would put the path of the file into the code again. No byte code is written.
"""

import os
import sys
from _frozen_importlib import ModuleSpec

PACKAGE = "perfwrap_recorder"

_sources = {}  # name of a module -> path of its source


def serve(data):
    """Note where the modules are, and return their names; ``data`` is the folder of the package."""
    _note_sources(PACKAGE, os.path.join(data, PACKAGE))
    for name in _sources:
        if name in sys.modules:  # the shim had to load it before there was anything else to import
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
        """Leave the making of the module to Python."""

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
    import linecache  # not loaded in every interpreter, but torch is about to load it

    with open(_sources[name], encoding="utf-8") as file:
        source = file.read()
    linecache.cache[_file_name(name)] = len(source), None, source.splitlines(True), _file_name(name)
    return source


def _file_name(name):
    return "<perfwrap:%s>" % (name[len(PACKAGE) + 1 :] or "recorder")
