"""Finds the line of the user's code that is running, at little cost.

The file of a code object decides which of three sorts it is:

- *hidden*: torch, Python's standard library, the recorder, scripts next to the interpreter (``torchrun``), and
  generated code without a file (torch's generated graphs, the methods of dataclasses) or in Inductor's cache;
- *installed*: any other package in a ``site-packages`` or ``dist-packages`` folder;
- *the user's*: everything else: the running script, notebook cells, packages under development.

The user's line is the innermost line of the user's own code. If there is installed code between it and the call, such
as a library's trainer class, the label also names the innermost line of that code. For a program without user code
(``python -m package.train`` from site-packages) it is the innermost installed line.
"""

from __future__ import annotations

import os
import sys

from perfwrap_recorder.journal import journal
from perfwrap_recorder.program import weak_table

MAX_PLACES = 20_000
"""Known places; beyond it all are dropped, since a program can generate any amount of code."""

HIDDEN, INSTALLED, USERS = range(3)

COMPILED_LENGTH = 55
"""The length of the names of files that Inductor writes: a "c", 51 digits of a hash, and ``.py``."""

CALLER = -1
"""The value for hidden places: continue with the caller."""

PACKAGES = ("/site-packages/", "/dist-packages/")
SEPARATOR = "\x1f"

INTERNAL_FOLDERS = (
    "optim/",
    "utils/data/",
    "amp/",
    "cuda/amp/",
    "_dynamo/",
    "_functorch/",
    "_inductor/",
    "fx/",
)
"""Folders of torch whose code reads values for its own use, not for the user's line."""

FUNCTION = type(lambda: 0)

places = {}  # id of a code object -> what is known of its places; the entry goes when the code object is freed
_count = 0  # places that were added to the tables since they were emptied
skip_code = None  # Dynamo's function that excludes code from compilation, once it is known
_sorts = {}  # file name -> sort
_internal_files = {}  # file name -> whether it is in one of INTERNAL_FOLDERS
_start_directory = os.getcwd()  # what a script's relative file name is relative to
_standard_library = os.path.dirname(os.__file__) + "/"
_scripts = os.path.dirname(sys.executable or "/")
_recorder = (os.path.dirname(os.path.dirname(journal.span.__code__.co_filename)) or "<perfwrap") + "/"


def label(name, frame):
    """Return the text id of ``name`` at the user's line that ``frame`` or one of its callers runs."""
    via = None
    while frame is not None:
        known = places.get(id(frame.f_code))
        key = (name, frame.f_lasti) if via is None else (name, frame.f_lasti, via)
        found = known.get(key) if known is not None else None
        if found is None:
            found = _learn(key, name, frame, via)
        if type(found) is tuple:
            via = via or found
        elif found >= 0:
            return found
        frame = frame.f_back
    return journal.text(SEPARATOR.join((name,) + via) if via else name)


def label_of(name, path, line, function):
    """Return the text id of ``name`` at a line of a function, if its frame is gone; without a line in hidden code."""
    main = getattr(sys.modules.get("__main__"), "__dict__", {})
    sort = _sort_of_unfiled(path, main) if path.startswith("<") else _sort_of_file(path)
    if sort == HIDDEN or not path:
        return journal.text(name)
    return journal.text(SEPARATOR.join((name, absolute(path), str(line or 0), function)))


def is_torch_internal(frame):
    """Return whether a frame runs code of torch's optimizers, loaders, scalers or compilers."""
    if frame is None:
        return False
    path = frame.f_code.co_filename
    found = _internal_files.get(path)
    if found is None:
        torch = _torch_directory()
        found = _internal_files[path] = bool(torch) and path.startswith(
            tuple(torch + name for name in INTERNAL_FOLDERS)
        )
    return found


def find_place(frame, is_skipped=None):
    """Return file, line and function of the user's line, joined as in a label; "" if there is none.

    Frames for which ``is_skipped(frame)`` is true are skipped.
    """
    installed = ""
    while frame is not None:
        sort = HIDDEN if is_skipped and is_skipped(frame) else sort_of(frame)
        if sort == USERS:
            return SEPARATOR.join(_place_of(frame))
        if sort == INSTALLED and not installed:
            installed = SEPARATOR.join(_place_of(frame))
        frame = frame.f_back
    return installed


def is_users(path):
    """Return whether code from that file is the user's own."""
    return not path.startswith("<") and _sort_of_file(path) == USERS


def define(name, function):
    """Return the text id of ``name`` at the line where a function begins that is not hidden code."""
    if type(function) is not type(define):
        return journal.text(name)
    code = function.__code__
    path = code.co_filename
    unfiled = path.startswith("<")
    if (_sort_of_unfiled(path, function.__globals__) if unfiled else _sort_of_file(path)) == HIDDEN:
        return journal.text(name)
    place = absolute(path), str(code.co_firstlineno), getattr(code, "co_qualname", code.co_name)
    return journal.text(SEPARATOR.join((name,) + place))


def call_from(frame, function, arguments, options):
    """Return ``function(*arguments, **options)``, called by code with the file and line that ``frame`` runs.

    For functions whose warnings name the Python line that called them.
    """
    if frame is None or skip_code is None:  # called from C, as at the end of the program
        return function(*arguments, **options)
    known = places.get(id(frame.f_code))
    caller = known.get(frame.f_lasti) if known is not None else None
    # Made for each call: a cached function would keep the globals of the program's module alive.
    return FUNCTION(caller or _make_caller(frame), frame.f_globals)(function, arguments, options)


def _make_caller(frame):
    """Return code that calls a function, with the file, line and name of the place that a frame runs."""
    code = frame.f_code
    changes = {
        "co_filename": code.co_filename,
        "co_firstlineno": frame.f_lineno or 1,
        "co_name": code.co_name,
    }
    if hasattr(code, "co_qualname"):
        changes["co_qualname"] = code.co_qualname
    caller = _call.__code__.replace(**changes)
    # Otherwise Dynamo, between two graphs, compiles it as a function of the program.
    skip_code(caller)
    _table_of(code)[frame.f_lasti] = caller
    return caller


_package = __name__.partition(".")[0] + "."
_call = lambda _perfwrap_call, arguments, options: _perfwrap_call(*arguments, **options)  # noqa: E731 - one line


def drop_frames(error):
    """Remove the recorder's frames from the front of an error's traceback."""
    trace = error.__traceback__
    while trace is not None and _is_own(trace.tb_frame):
        trace = trace.tb_next
    error.__traceback__ = trace


def is_caller(code):
    """Return whether ``call_from`` made that code: it has the place of its caller."""
    return code.co_varnames == _call.__code__.co_varnames


def _is_own(frame):
    module, code = dict.get(frame.f_globals, "__name__"), frame.f_code
    if type(module) is str and module.startswith(_package):
        return True
    # The code that `call_from` makes has the globals, file and name of its caller.
    return is_caller(code)


def _table_of(code):
    """Return the table of a code object's places, to add one to it.

    A code object of the program is not kept alive: torch.compile drops its graphs when it is freed.
    """
    global _count
    if _count >= MAX_PLACES:
        _count = 0
        places.clear()
    _count += 1
    known = places.get(id(code))
    if known is None:
        known = places[id(code)] = {None: weak_table.reference(places, id(code), code)}
    return known


def _learn(key, name, frame, via):
    """Add a place to its table and return its value: a text id, CALLER, or the place in an installed package."""
    sort = sort_of(frame)
    if sort == USERS:
        fields = (name,) + _place_of(frame)
        if via:
            fields += ("%s:%s" % (_short(via[0]), via[1]),)
        found = journal.text(SEPARATOR.join(fields))
    elif sort == INSTALLED:
        found = _place_of(frame)
    else:
        found = CALLER
    _table_of(frame.f_code)[key] = found
    return found


def _place_of(frame):
    """Return file, line and function as texts."""
    code = frame.f_code
    return absolute(code.co_filename), str(frame.f_lineno or 0), getattr(code, "co_qualname", code.co_name)


def absolute(path):
    """Return a path that does not depend on the current directory."""
    # No function of os.path: Dynamo would trace it as part of the region that it compiles.
    if path[:1] not in "/<":
        path = _start_directory + "/" + (path[2:] if path.startswith("./") else path)
    return path


def _short(path):
    """Return a path from its package folder on."""
    for packages in PACKAGES:
        path = path.rpartition(packages)[2]
    return path


def sort_of(frame):
    """Return which of the three sorts of code a frame runs."""
    name = frame.f_code.co_filename
    if name.startswith("<"):
        return _sort_of_unfiled(name, frame.f_globals)
    found = _sorts.get(name)
    if found is None:
        found = _sorts[name] = _sort_of_file(name)
    return found


def _sort_of_unfiled(name, variables):
    """Return the sort of code without a file: the user's if it is the program (``-c``, a pipe, a cell).

    The program of a process that multiprocessing spawned is one line that multiprocessing wrote.
    """
    if name.startswith(("<frozen ", "<perfwrap")) or "spawn_main" in variables:
        return HIDDEN
    is_program = variables.get("__name__") == "__main__" and str(variables.get("__file__", "<")).startswith(
        "<"
    )
    return USERS if is_program else HIDDEN


def _torch_directory():
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return file.rpartition("/")[0] + "/" if file else ""


def _is_compiled(folder, name):
    """Return whether a file is one that torch's Inductor writes: named by a hash, in a folder of its first letters."""
    return len(name) == COMPILED_LENGTH and name[0] == "c" and folder.endswith("/" + name[1:3])


def _sort_of_file(path):
    torch = _torch_directory()
    if torch and path.startswith(torch):
        return HIDDEN
    if any(packages in path for packages in PACKAGES):
        return INSTALLED
    folder, _, name = path.rpartition("/")
    if path.startswith((_standard_library, _recorder)) or folder == _scripts or _is_compiled(folder, name):
        return HIDDEN
    return USERS
