"""Puts timing wrappers in the place of torch's functions so that nobody else can tell.

- The code of a wrapper bears a file name inside of ``torch/nn``: Dynamo traces it like torch's own. While it
  does, ``is_compiling()`` is true and the wrapper is nothing but a call of the original.
- A wrapper has the names, documentation and attributes of its original, which ``__wrapped__`` points to; it
  is found where pickle looks for it.
- The file name also bears the two words by which Python's ``warnings`` knows frames of its import system:
  such frames are left out of ``stacklevel``, so a warning still names the user's line. A wrapper that stands
  for a frame of torch's instead of adding one must be counted, hence has another file name.
"""

from __future__ import annotations

import os

from perfwrap_recorder import ranges
from perfwrap_recorder.clock import now

UNCOUNTED_FILE = "<perfwrap importlib._bootstrap>"
COUNTED_FILE = "<perfwrap>"


def patch(torch, owner, name, make, span_name="", counted=False):
    """Replace a function of a class or module by ``make(original, call, is_compiling)``, once.

    ``call`` is the original, inside of an NVTX range called ``span_name`` where such are wanted. Nothing is
    done where this version of torch has no such function.
    """
    original = getattr(owner, name, None)
    if original is None or is_wrapper(original):
        return
    call = ranges.around(torch, original, span_name) if span_name else original
    wrapper = make(original, call, find_is_compiling(torch))
    _disguise(torch, wrapper, original, owner, name, COUNTED_FILE if counted else UNCOUNTED_FILE)
    setattr(owner, name, wrapper)


def timed(finish):
    """Return a maker of wrappers that call ``finish(start, duration, arguments)`` after the original.

    ``sys._getframe(2)`` is the caller's frame in there.
    """

    def make(original, call, is_compiling):
        def wrapper(*arguments, **options):
            if is_compiling():
                return original(*arguments, **options)
            start = now()
            result = call(*arguments, **options)
            finish(start, now() - start, arguments)
            return result

        return wrapper

    return make


def is_wrapper(function):
    """Say whether a function is one of our wrappers."""
    code = getattr(function, "__code__", None)
    return code is not None and os.path.basename(code.co_filename) in (UNCOUNTED_FILE, COUNTED_FILE)


def find_is_compiling(torch):
    """Return the function by which this version of torch tells that Dynamo is tracing."""
    compiler = getattr(torch, "compiler", None)
    for owner, name in (
        (compiler, "is_dynamo_compiling"),
        (compiler, "is_compiling"),
        (torch._utils, "is_compiling"),
    ):
        if hasattr(owner, name):
            return getattr(owner, name)
    return bool


def hide(torch, function, file=UNCOUNTED_FILE):
    """Give a function's code a file name inside of torch."""
    path = os.path.join(os.path.dirname(torch.nn.__file__), file)
    function.__code__ = function.__code__.replace(co_filename=path)
    return function


def _disguise(torch, wrapper, original, owner, name, file):
    hide(torch, wrapper, file)
    wrapper.__code__ = wrapper.__code__.replace(co_name=name)
    wrapper.__dict__.update(getattr(original, "__dict__", {}))
    wrapper.__name__ = name
    wrapper.__doc__ = original.__doc__
    if isinstance(owner, type):
        wrapper.__module__, wrapper.__qualname__ = owner.__module__, "%s.%s" % (owner.__qualname__, name)
    else:
        wrapper.__module__, wrapper.__qualname__ = original.__module__, original.__qualname__
    wrapper.__wrapped__ = original
