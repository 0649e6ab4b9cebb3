"""Times each compilation by torch.compile, and writes why it was needed and where graphs break.

Instruments ``run_start_callbacks`` and ``run_end_callbacks`` of ``torch._dynamo.callback``'s handler, once the
program has imported Dynamo: Dynamo calls them around each compilation of a frame, of a backward graph, and each
recording of a CUDA graph. (``torch._dynamo.reset`` forgets registered callbacks.) Dynamo's own records are
read, never changed: its list of reasons for graph breaks and the metrics of its last compilations.

Nothing is recorded in versions of torch without that handler (before 2.3). Simultaneous compilations in several threads
are recorded as one. Loading from a cache is part of the compilation that needs it. What Dynamo records at the very end
of a compilation is read when the next one starts, every ten seconds of training, and at the program's end.
"""

from __future__ import annotations

import atexit
import sys
from _thread import get_ident
from _weakref import ref

from perfwrap_recorder import guard, journal_format, redaction
from perfwrap_recorder.clock import now
from perfwrap_recorder.instrumenting import instrument
from perfwrap_recorder.journal import journal
from perfwrap_recorder.program import source_lines

MAX_MARKS = 200
"""Maximum number of marks of each kind; the facts continue to count."""

MAX_FRAMES = 1000
"""Maximum number of compiled functions that are remembered, by Dynamo's number."""

DEPTH = 12
"""Maximum number of callers up to the function that knows what is compiled."""

MAX_REASON_LENGTH = 500

TRIGGERS = {
    "DYNAMO": "compile",
    "LAZY_BACKWARD": "compile backward",
    "TRITON_AUTOTUNING": "autotune",
    "CUDAGRAPH_RECORDING": "record CUDA graph",
}

NOT_COUNTED = (
    "this version of torch does not report steps after the first compilation, so they are not counted"
)

LIMIT = "limit exceeded"
"""Part of Dynamo's message when it gives up recompiling a function."""

compiling = {}  # thread -> (when its compilation began, label, which compilation of the frame)
_frames = {}  # Dynamo's number for a function, as text -> its file, line and name
_last_metrics = [None]  # a weak reference to the newest that have been read
_last_break = [None]
_marked = {}  # what -> how many marks, or the details that were written
_looking = []  # the function that is called every ten seconds
_counts = {}  # what -> how often


def install(torch):
    """Write the coverage; there is nothing to record until Dynamo is imported."""
    journal.cover("probe/compilation")


def install_callbacks(dynamo):
    """Start recording."""
    torch = sys.modules["torch"]
    _watch_patcher(torch)
    handler = getattr(sys.modules.get("torch._dynamo.callback"), "CompilationCallbackHandler", None)
    if handler is None:
        journal.uncover("probe/compilation", "this version of torch does not report compilations")
        return
    begin, end = guard.protect("compilation", _begin), guard.protect("compilation", _end)
    start, stop = handler.run_start_callbacks, handler.run_end_callbacks
    instrument.instrument(torch, start, *_around_start(begin), None, ("args",))
    instrument.instrument(torch, stop, *_around_end(end))
    if not _looking:
        # Made here and not above: Dynamo would trace a function that is made before the recorder is hidden.
        _looking.append(guard.protect("compilation", _look))
        journal.every_interval.add(_looking[0])
        atexit.register(_looking[0])


MODULES = {"torch._dynamo": install_callbacks}


def _watch_patcher(torch):
    """Write that steps are not counted once Dynamo has removed what torch calls around them (PyTorch 2.0)."""
    patcher = getattr(sys.modules.get("torch._dynamo.eval_frame"), "TorchPatcher", None)
    patch = instrument.innermost(getattr(patcher, "patch", None))
    if "hooked" in getattr(getattr(patch, "__code__", None), "co_consts", ()):
        instrument.instrument(torch, patch, tuple, guard.protect("compilation", _uncover_steps))


def _uncover_steps(state, result):
    journal.uncover("probe/optimizer", NOT_COUNTED)


def _around_start(begin):
    def begin_start(event):
        begin(sys._getframe(1).f_back, event)

    def end_start(state, result):
        """Never called: ``begin`` returns no state."""

    return begin_start, end_start


def _around_end(end):
    def begin_end():
        return ()

    def end_end(state, result):
        end()

    def fail_end(state, error):
        end()

    return begin_end, end_end, fail_end


def _begin(frame, event):
    start = now()
    _read_metrics()
    trigger = getattr(getattr(event, "callback_trigger", None), "name", "DYNAMO")
    name = TRIGGERS.get(trigger, "compile")
    function, _, which = _compile_id(event).partition("/")
    place = _place_of_code(frame) if trigger == "DYNAMO" else _frames.get(function)
    if place is None:
        label = source_lines.label(name, frame)
    else:
        label = journal.text(source_lines.SEPARATOR.join((name,) + place))
        if len(_frames) < MAX_FRAMES:
            _frames[function] = place
    compiling[get_ident()] = start, label, int(which) if which.isdecimal() else 0
    journal.record(start, now() - start, 0, journal.text("compilation"), journal_format.PERFWRAP)


def _end():
    began = compiling.pop(get_ident(), None)
    if began:
        start, label, which = began
        journal.span(start, now() - start, which, label, journal_format.COMPILE)
    _read_breaks()


def _place_of_code(frame):
    """Return file, line and name of the function that is being compiled, None if unknown."""
    for _ in range(DEPTH):
        if frame is None:
            return None
        if frame.f_code.co_name in ("compile_inner", "_compile"):
            code = frame.f_locals.get("code")
            if isinstance(code, instrument.CODE):
                name = getattr(code, "co_qualname", code.co_name)
                return code.co_filename, str(code.co_firstlineno), name
        frame = frame.f_back
    return None


def _compile_id(arguments):
    """Return Dynamo's number for what is compiled, such as ``3/1``: the second compilation of frame 3."""
    found = getattr(arguments, "compile_id", None)
    if found is None:
        context = getattr(sys.modules.get("torch._guards"), "CompileContext", None)
        found = context.current_compile_id() if hasattr(context, "current_compile_id") else ""
    return _plain_id(found)


def _plain_id(found):
    """Return ``3/1`` for ``!0/3/1`` (within compiled autograd) and for ``3/1_2`` (its third attempt)."""
    return "/".join(str(found or "").partition("_")[0].split("/")[-2:])


def _read_metrics():
    """Write the metrics of compilations that have ended since the last call."""
    utils = sys.modules.get("torch._dynamo.utils")
    for metrics in _newer(getattr(utils, "_compilation_metrics", ()), _last_metrics):
        _tell(metrics)


def _newer(items, last):
    """Return the items that came after the one that ``last`` refers to, which then is the newest.

    It is not kept alive: it may refer to a module of the program and to compiled code.
    """
    items = list(items)
    known = last[0] and last[0]()
    for place, item in enumerate(items):
        if item is known:
            items = items[place + 1 :]
            break
    if items:
        last[:] = [ref(items[-1])]
    return items


def _tell(metrics):
    reason = _short(getattr(metrics, "recompile_reason", None))
    failure = getattr(metrics, "fail_reason", None)
    function, _, which = _plain_id(getattr(metrics, "compile_id", None)).partition("/")
    place = _frames.get(function) or _place(metrics, "co_filename", "co_firstlineno", "co_name")
    if failure and LIMIT in failure.partition("\n")[0]:
        _mark("recompile_limit", place + (which, reason))
    elif reason:
        _mark("recompile", place + (which, reason))
    if failure and LIMIT not in failure.partition("\n")[0]:
        where = _place(metrics, "fail_user_frame_filename", "fail_user_frame_lineno", "co_name")
        _mark("compile_failed", (where if where[0] else place) + (which, _short(failure)))


def _place(metrics, *names):
    return tuple([str(getattr(metrics, name, None) or "") for name in names])


def _read_breaks():
    """Write where graphs have broken since the last call."""
    reasons = getattr(sys.modules.get("torch._dynamo.utils"), "graph_break_reasons", ())
    for broken in _newer(reasons, _last_break):
        place = "", "", ""
        for line in broken.user_stack:
            if not place[0] or source_lines.is_users(line.filename):
                place = line.filename, str(line.lineno), line.name
        _mark("graph_break", place + ("", _short(broken.reason)))


def _mark(what, detail):
    """Write a mark once; a fact counts how often it came."""
    _counts[what] = _counts.get(what, 0) + 1
    known = _marked.setdefault(what, set())
    if detail not in known and len(known) < MAX_MARKS:
        known.add(detail)
        journal.mark(what, redaction.masked(source_lines.SEPARATOR.join(detail), is_code=True))
    journal.fact("compile/" + what, _counts[what])


def _short(reason):
    """Return the first line of a reason, with its context for developers."""
    text = str(reason or "")
    first = text.partition("\n")[0]
    context = text.partition("Developer debug context: ")[2].partition("\n")[0]
    return (first + (" (%s)" % context if context else ""))[:MAX_REASON_LENGTH]


def _look():
    _read_metrics()
    _read_breaks()
