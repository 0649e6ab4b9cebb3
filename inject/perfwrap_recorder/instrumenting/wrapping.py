"""Replaces functions of torch by wrappers if instrument.py cannot be used: collectives, C++, experiments.

- The code of a wrapper has a file name that begins with that of its original, or with ``torch/nn`` if that is
  written in C: Dynamo decides by such names, so it treats both alike. While it traces, ``is_compiling()`` is true
  and the wrapper only calls the original.
- If a region that Dynamo compiles calls the recorder between two graphs, Dynamo traces each function that is
  called meanwhile: the recorder's functions have such a file name too.
- A wrapper has the names, documentation and attributes of its original, which ``__wrapped__`` points to; pickle
  finds it by its name.
- The file name also contains the two words by which Python's ``warnings`` recognises frames of its import system:
  ``stacklevel`` skips such frames, so a warning still names the user's line.
"""

from __future__ import annotations

import os
import sys

from perfwrap_recorder.instrumenting import tensor_methods
from perfwrap_recorder.instrumenting.instrument import CODE, FUNCTION, find_is_compiling

OWN_FILE = "<perfwrap importlib._bootstrap>"

PACKAGE = __name__.partition(".")[0]
IMPORTERS = (PACKAGE + ".on_import", PACKAGE + ".own_modules")
"""Modules whose code has file names that Python's import system uses."""


def patch(torch, owner, name, make, over=False):
    """Replace a function of a class or module by ``make(original, is_compiling)``, once.

    ``over`` wraps also a wrapper that is there already. Nothing is done if this version of torch has no such
    function.
    """
    original = tensor_methods.caller_of(owner, name) or getattr(owner, name, None)
    if original is None or (is_wrapper(original) and not over):
        return
    wrapper = make(original, find_is_compiling(torch))
    code = getattr(original, "__code__", None)
    file = code.co_filename if code else os.path.dirname(torch.nn.__file__)
    wrapper.__code__ = _rename(wrapper.__code__, os.path.join(file, OWN_FILE)).replace(
        co_name=code.co_name if code else name
    )
    _disguise(wrapper, original, owner, name)
    setattr(owner, name, wrapper)


def is_wrapper(function):
    """Return whether a function is one of our wrappers."""
    code = getattr(function, "__code__", None)
    return code is not None and os.path.basename(code.co_filename) == OWN_FILE


def innermost(function):
    """Return the function inside our wrappers."""
    while is_wrapper(function):
        function = function.__wrapped__
    return function


def version_of(torch):
    """Return the first two numbers of torch's version; (0, 0) if unknown."""
    numbers = str(torch.__version__).split(".")[:2]
    return tuple(map(int, numbers)) if len(numbers) == 2 and all(map(str.isdigit, numbers)) else (0, 0)


def hide_recorder(torch):
    """Give the code of the recorder's functions, and of those that they make, a file name inside torch."""
    path = os.path.join(os.path.dirname(torch.nn.__file__), OWN_FILE)
    for name, module in list(sys.modules.items()):
        if name.startswith(PACKAGE) and name not in IMPORTERS:
            for value in list(vars(module).values()):
                for member in (value, *getattr(value, "__dict__", {}).values()):
                    if isinstance(member, FUNCTION) and member.__module__ == name:
                        member.__code__ = _rename(member.__code__, path)


def _rename(code, path):
    inner = tuple(
        _rename(constant, path) if isinstance(constant, CODE) else constant for constant in code.co_consts
    )
    return code.replace(co_filename=path, co_consts=inner)


def _disguise(wrapper, original, owner, name):
    wrapper.__dict__.update(getattr(original, "__dict__", {}))
    wrapper.__name__ = original.__name__
    wrapper.__doc__ = original.__doc__
    if hasattr(original, "__objclass__"):  # a method in C, which is found in a subclass
        wrapper.__module__, wrapper.__qualname__ = owner.__module__, "%s.%s" % (owner.__qualname__, name)
    else:
        wrapper.__module__, wrapper.__qualname__ = original.__module__, original.__qualname__
    wrapper.__wrapped__ = original
