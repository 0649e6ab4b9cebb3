"""Run edited source in place of some files of the program, which stay as they are on the disk.

The shim loads this file only in runs with edited files (``overlay`` of ``launch/options.py``), while ``site`` runs: it
must not import anything that is not loaded in every interpreter. The edited source is compiled under the name of the
original file, so ``__file__``, ``sys.path``, data paths, tracebacks and pickled names are those of the original.

- Imports, ``python -m``, a folder or package, multiprocessing's spawn, cProfile, pdb: all open source files by
  ``io.open_code``, which is replaced. ``SourceFileLoader.path_stats`` refuses to answer for an edited file, so that
  Python neither reads nor writes its byte code.
- ``python train.py``: Python asks ``sys.path_hooks`` whether a script is a folder or an archive before it opens it. A
  hook says so for an edited script, and ``runpy`` has its importer run it. In the script's tracebacks no frame of
  that shows, except of KeyboardInterrupt.
- ``linecache`` gets the edited lines, for ``inspect.getsource`` and all that compiles from source, such as TorchScript.

Not reached: a script on standard input, and programs that read source by other means (coverage, IPython's ``%run``,
pytest's test modules). Each process that runs an edited file adds a line to ``edited.log`` of the run folder. A file
that changed after it was edited is run as it is, and the run folder has a line of a failure.

Visible: ``io.open_code`` is a function of Python, ``linecache`` is loaded earlier, and below the first frame of an
edited script are frames of ``runpy``. Before Python 3.13 the traceback of an uncaught exception shows lines of the
original file.
"""

import io
import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import SourceFileLoader
from marshal import loads

FILE = "overlay"
"""The edited files, in the folder of the recorder: a dictionary by path of pairs: the content before and after."""
LOG = "edited.log"

_edited = {}  # (device, inode) of a file -> path, content before, content after
_used = set()  # paths that are in the log
_shim = {}  # the shim's functions: note, run_folder
_open_code, _path_stats = io.open_code, SourceFileLoader.path_stats


def install(folder, note, run_folder):
    """Run the edited files of the recorder's folder from now on; nothing happens if this machine has none of them."""
    _shim.update(note=note, run_folder=run_folder)
    with open(os.path.join(folder, FILE), "rb") as file:
        entries = loads(file.read())  # nosec B302 # a file of ours in a folder of ours
    for path, (before, after) in entries.items():
        found = _identity(path)
        if found:
            _edited[found] = path, before, after
    if not _edited:
        return
    sys.modules["_io"].open_code = io.open_code = open_code
    SourceFileLoader.path_stats = path_stats
    if sys.argv and _identity(sys.argv[0]) in _edited:
        sys.path_hooks.insert(0, MainImporter)


def open_code(path):
    """Return the edited source of a file, or open it: replaces ``io.open_code``."""
    text = find(path)
    return _open_code(path) if text is None else io.BytesIO(text)


def path_stats(self, path):
    """Return what byte code is compared with; an edited file has none: replaces a method of SourceFileLoader."""
    if find(path) is not None:
        raise OSError("edited: it has no byte code")
    return _path_stats(self, path)


def find(path):
    """Return the edited source of a file, None if it has none."""
    found = _edited.get(_identity(path))
    if found is None:
        return None
    name, before, text = found
    with _open_code(os.path.abspath(path)) as file:
        if file.read() != before:
            if name not in _used:
                _used.add(name)
                _shim["note"]("failed", "%s changed after it was edited" % name)
            return None
    if (name, path) not in _used:
        _used.add((name, path))
        _show_lines(os.fspath(path), text)
        _write_log(name)
    return text


def _identity(path):
    """Return what is the same for all paths of a file, None if there is no such file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError, TypeError):
        return None
    return found.st_dev, found.st_ino


def _show_lines(path, text):
    """Have linecache return the edited lines of a file as long as the file stays as it is."""
    import linecache
    from importlib.util import decode_source

    found = os.stat(path)
    linecache.cache[path] = found.st_size, found.st_mtime, decode_source(text).splitlines(True), path


def _write_log(path):
    line = "%d\t%s\n" % (os.getpid(), path.replace("\n", " "))
    log = os.path.join(_shim["run_folder"](), LOG)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode("utf-8", "surrogateescape"))
    finally:
        os.close(descriptor)


class MainImporter:
    """A path hook for one path, the edited script, and its importer: finds ``__main__``."""

    def __init__(self, path):
        if find(path) is None:
            raise ImportError("only for the edited script", path=path)
        self.path = path

    def find_spec(self, name, target=None):
        """Return the spec of the script."""
        return ModuleSpec(name, self, origin=self.path) if name == "__main__" else None

    def create_module(self, spec):
        """Have Python create the module."""

    def get_code(self, name):
        """Return code that calls ``run`` where runpy runs the script."""
        sys.path_hooks.remove(MainImporter)
        sys.path_importer_cache[self.path] = None  # as Python leaves it of a script
        folder = os.path.dirname(os.path.realpath(self.path))
        sys.path[sys.path.index(self.path)] = folder
        if getattr(sys.flags, "safe_path", False):
            sys.path.remove(folder)
        self.code = compile(find(self.path), self.path, "exec", dont_inherit=True)
        return compile("__spec__.loader.run()", "<perfwrap:overlay>", "exec", dont_inherit=True)

    def run(self):
        """Run the script in the module that Python made for it; show an exception as Python does."""
        names = sys.modules["__main__"].__dict__
        loader = SourceFileLoader("__main__", self.path)
        names.update(__spec__=None, __package__=None, __loader__=loader)
        try:
            exec(self.code, names)  # nosec B102 # the user's program
            return
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - Python would show it
            found = type(error), error, error.__traceback__.tb_next
        sys.last_type, sys.last_value, sys.last_traceback = found
        if sys.version_info >= (3, 12):
            sys.last_exc = found[1]
        found[1].__traceback__ = found[2]
        sys.excepthook(*found)
        raise SystemExit(1)
