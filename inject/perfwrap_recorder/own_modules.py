"""Load the recorder's modules from source, under names in angle brackets, and start the recorder.

Coverage and similar tools do not count code with such a file name, and an ordinary import would put the path of
the file into the code. No byte code is written here: the launcher lends what its own Python has of these sources, which
is used if this Python is of the same version and the source is the same. To compile them takes some 70 ms.
"""

import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER
from _imp import _fix_co_filename, source_hash
from marshal import loads

PACKAGE = "perfwrap_recorder"
BYTE_CODE = "code-"
"""The file with the byte code is named by this, and by the number of its version of byte code."""

_sources = {}  # name of a module -> path of its source
_lent = {}  # path of a source, relative to the package -> its hash, and its byte code


def start(finders, data, run_folder):
    """Make the recorder's modules importable by a table of finders, and start the recorder."""
    finders.update(dict.fromkeys(serve(data), find))
    from perfwrap_recorder.uncollected import uncollected

    uncollected(_start)(data, run_folder)


def _start(data, run_folder):
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
    _borrow(os.path.join(data, BYTE_CODE + MAGIC_NUMBER.hex()))
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
        exec(_code_of(module.__spec__.name), module.__dict__)  # nosec B102 # a file of ours


def _code_of(name):
    """Return the code of a module: lent, or compiled."""
    source, file = _remember_source(name), _file_name(name)
    hashed, code = _lent.get(_key(name), (None, None))
    if hashed != source_hash(0, source):
        return compile(source, file, "exec")
    code = loads(code)  # nosec B302 # a file of ours
    _fix_co_filename(code, file)
    return code


def _key(name):
    """Return the name by which a module's code was lent: the end of its path."""
    return "/".join(
        _sources[name].split(os.sep)[-1 - name.count(".") - _sources[name].endswith("__init__.py") :]
    )


def _borrow(path):
    _lent.clear()
    try:
        with open(path, "rb") as file:
            _lent.update(loads(file.read()))  # nosec B302 # a file of ours
    except (OSError, EOFError, TypeError, ValueError):
        pass  # not lent to this version of Python, or damaged: the sources are compiled


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
    """Return a module's source as bytes, and keep it for tracebacks and ``inspect.getsource``."""
    import linecache  # not loaded in every interpreter, but torch loads it too

    with open(_sources[name], "rb") as file:
        source = file.read()
    text = source.decode("utf-8")
    linecache.cache[_file_name(name)] = len(text), None, text.splitlines(True), _file_name(name)
    return source


def _file_name(name):
    return "<perfwrap:%s>" % (name[len(PACKAGE) + 1 :] or "recorder")
