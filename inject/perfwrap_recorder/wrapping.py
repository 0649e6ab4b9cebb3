"""Puts timing wrappers in the place of torch's functions so that nobody else can tell.

- The code of a wrapper bears a file name that begins with that of its original, or with ``torch/nn`` where
  that is written in C: Dynamo goes by such names, so it treats both alike. While it traces,
  ``is_compiling()`` is true and the wrapper is nothing but a call of the original.
- Where a region that Dynamo compiles runs a wrapped function between two graphs, Dynamo looks at each
  function that is called meanwhile: the recorder's own ones bear such a file name too.
- A wrapper has the names, documentation and attributes of its original, which ``__wrapped__`` points to; it
  is found where pickle looks for it.
- The file name also bears the two words by which Python's ``warnings`` knows frames of its import system:
  such frames are left out of ``stacklevel``, so a warning still names the user's line. A wrapper that stands
  for a frame of torch's instead of adding one must be counted, hence has another file name.
"""

from __future__ import annotations

import os
import sys
from sys import _getframe

from perfwrap_recorder import gpu_time, guard, ranges, rest
from perfwrap_recorder.clock import now
from perfwrap_recorder.rest import resting

UNCOUNTED_FILE = "<perfwrap importlib._bootstrap>"
COUNTED_FILE = "<perfwrap>"

PACKAGE = __name__.partition(".")[0]
IMPORTERS = (PACKAGE + ".on_import", PACKAGE + ".own_modules")
"""Modules whose code bears names that Python's import system goes by."""

KNOWS_METHODS = 2, 2
"""The first version of torch whose compiler takes what stands for a method of tensors into its graphs."""

phases = {}  # id of the code of a wrapper, or of what may stand in its place -> what is at work while it runs

FUNCTION = type(lambda: 0)
CODE = type((lambda: 0).__code__)


def patch(
    torch, owner, name, make, span_name="", counted=False, file="", kind=None, over=False, make_counter=None
):
    """Replace a function of a class or module by ``make(original, call, is_compiling)``, once.

    ``call`` is the original, inside of an NVTX range called ``span_name`` where such are wanted. ``file`` is the
    one that Dynamo shall judge the wrapper by where that is not the original's. ``kind`` is that of the spans where
    the wrapper does nothing while those rest. ``over`` puts it around a wrapper of a probe's, too.
    ``make_counter(wrapper, call)`` makes what stands there instead where rests must cost even less. Nothing is done
    where this version of torch has no such function.
    """
    original = getattr(owner, name, None)
    if original is None or (is_wrapper(original) and not over):
        return
    call = ranges.around(torch, original, span_name) if span_name else original
    wrapper = make(original, call, find_is_compiling(torch))
    code = getattr(original, "__code__", None)
    file = file or (code.co_filename if code else os.path.dirname(torch.nn.__file__))
    path = os.path.join(file, COUNTED_FILE if counted else UNCOUNTED_FILE)
    counter = make_counter and make_counter(wrapper, call)
    for ours in (wrapper, counter) if counter else (wrapper,):
        ours.__code__ = _rename(ours.__code__, path).replace(co_name=code.co_name if code else name)
        _disguise(ours, original, owner, name)
    is_tensors = owner is getattr(torch, "Tensor", None)
    phase = span_name or (wrapper.__qualname__ if is_tensors else name)
    for each in (wrapper, counter, original):
        if hasattr(each, "__code__"):
            phases[id(each.__code__)] = phase
    theirs = vars(owner).get(name)
    setattr(owner, name, wrapper)
    if counter:
        rest.offer(rest.COUNTS, owner, name, wrapper, counter)
    elif kind is not None:
        rest.offer(kind, owner, name, wrapper, theirs)


def timed(probe, finish, kind=None, gpu_kind=None):
    """Return a maker of wrappers that call ``finish(frame, start, duration, arguments)`` after the original.

    The frame is the caller's. ``kind`` is that of the spans, for those that may rest, and ``gpu_kind`` for those
    whose time on a GPU is of interest too: ``finish`` then returns their label.
    """

    def without_options(frame, start, duration, arguments, _):
        return finish(frame, start, duration, arguments)

    return timed_with_options(probe, without_options, kind, gpu_kind)


def timed_with_options(probe, finish, kind=None, gpu_kind=None, begin=None):
    """Return a maker of wrappers that call ``begin()``, and ``finish(frame, start, duration, arguments, options)``."""
    finish = guard.protect(probe, finish)
    begin_gpu, end_gpu, keep_gpu = gpu_time.begin, gpu_time.end, gpu_time.keep
    if gpu_kind is None:
        begin_gpu = None

    def make(original, call, is_compiling):
        def wrapper(*arguments, **options):
            if is_compiling() or kind in resting:
                return original(*arguments, **options)
            if begin:
                begin()
            pair = begin_gpu and begin_gpu(gpu_kind)
            start = now()
            result = call(*arguments, **options)
            duration = now() - start
            pair = pair and end_gpu(pair)
            name = finish(_getframe().f_back, start, duration, arguments, options)
            if pair:
                keep_gpu(pair, name)
            return result

        return wrapper

    return make


def is_wrapper(function):
    """Say whether a function is one of our wrappers."""
    code = getattr(function, "__code__", None)
    return code is not None and os.path.basename(code.co_filename) in (UNCOUNTED_FILE, COUNTED_FILE)


def innermost(function):
    """Return what our wrappers stand for."""
    while is_wrapper(function):
        function = function.__wrapped__
    return function


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


def version_of(torch):
    """Return the first two numbers of torch's version; (0, 0) where it has none."""
    numbers = str(torch.__version__).split(".")[:2]
    return tuple(map(int, numbers)) if len(numbers) == 2 and all(map(str.isdigit, numbers)) else (0, 0)


def hide(torch, function):
    """Give a function's code, and that of the functions it makes, a file name inside of torch."""
    function.__code__ = _rename(
        function.__code__, os.path.join(os.path.dirname(torch.nn.__file__), UNCOUNTED_FILE)
    )


def hide_recorder(torch):
    """Do the same for all functions of the recorder, which wrappers call."""
    for name, module in list(sys.modules.items()):
        if name.startswith(PACKAGE) and name not in IMPORTERS:
            for value in list(vars(module).values()):
                for member in (value, *getattr(value, "__dict__", {}).values()):
                    if isinstance(member, FUNCTION) and member.__module__ == name:
                        hide(torch, member)


def _rename(code, path):
    inner = tuple(
        _rename(constant, path) if isinstance(constant, CODE) else constant for constant in code.co_consts
    )
    return code.replace(co_filename=path, co_consts=inner)


def _disguise(wrapper, original, owner, name):
    wrapper.__dict__.update(getattr(original, "__dict__", {}))
    wrapper.__name__ = original.__name__
    wrapper.__doc__ = original.__doc__
    if hasattr(original, "__objclass__"):  # a method of C's, which is found in a subclass
        wrapper.__module__, wrapper.__qualname__ = owner.__module__, "%s.%s" % (owner.__qualname__, name)
    else:
        wrapper.__module__, wrapper.__qualname__ = original.__module__, original.__qualname__
    wrapper.__wrapped__ = original
