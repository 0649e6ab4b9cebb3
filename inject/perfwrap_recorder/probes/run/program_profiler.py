"""Times the program's own torch.profiler: its start, the ends of its windows, its tables and its exports.

Instruments functions of ``torch.profiler.profile`` and its base class, of ``torch.autograd.profiler.profile`` and of
the lists of events that these return, however the program uses them: by itself, through a library, or by a flag of a
trainer. Also writes whether a profiler records, whenever this changes, and the line that entered it. Most programs
make no profiler, so only the constructors are instrumented at once; the first call of one instruments the rest.

A profiler with ``enabled=False`` does nothing and is not recorded. Nor are calls below SHORT_NS: a step between two
windows of a schedule. What it costs to record each operation is part of the phases.
"""

from __future__ import annotations

from perfwrap_recorder import guard, journal_format, static_access
from perfwrap_recorder.gpu import profiler_window
from perfwrap_recorder.instrumenting import instrument, timing
from perfwrap_recorder.journal import journal
from perfwrap_recorder.probes.run import settings_facts
from perfwrap_recorder.program.source_lines import label
from perfwrap_recorder.uncollected import uncollected

OUTPUTS = ("key_averages", "total_average", "table", "export_chrome_trace", "export_stacks")
CALLS = (
    ("profiler.profile", ("start", "stop", "step")),
    (
        "profiler.profiler._KinetoProfile",
        ("start_trace", "stop_trace", "events", "export_memory_timeline", *OUTPUTS),
    ),
    ("autograd.profiler.profile", ("__enter__", "__exit__", "_ensure_function_events", *OUTPUTS)),
    ("autograd.profiler_util.EventList", OUTPUTS),
)
"""The owners, and the names of their functions."""
MADE_BY = ("profiler.profiler._KinetoProfile", "autograd.profiler.profile")
"""The classes whose constructors run before any of these functions."""

NAMES = {"__enter__": "start", "__exit__": "stop", "_ensure_function_events": "events"}
"""The names in records of functions that have another one."""
SWITCHING = ("start", "start_trace", "stop_trace", "__enter__", "__exit__")
"""The functions after which it may record, or not any more."""
ENTERING = ("start", "__enter__")
"""The functions by which a program enters a profiler."""

SHORT_NS = 20_000
LONG_NS = 1_000_000
"""A call from this length on is recorded by itself, also where others are summed."""


def install(torch):
    """Start recording."""
    watch = uncollected(guard.protect("program_profiler", _watch_calls))

    def begin():
        if not is_watching:
            is_watching.append(True)
            watch(torch)

    is_watching = []
    for path in MADE_BY:
        owner = _find(torch, path)
        if owner is not None:
            instrument.instrument(torch, owner.__init__, begin, _pass)
    journal.cover("probe/program_profiler")


def _watch_calls(torch):
    """Instrument the functions, before the first profiler is made."""
    for path, names in CALLS:
        owner = _find(torch, path)
        for name in names:
            function = vars(owner).get(name) if owner is not None else None
            if function is not None:
                finish = _finish_with(torch, name)
                timing.time_calls(torch, function, "program_profiler", finish, ("self",), phase="profiler")


def _find(torch, path):
    """Return the class at a path below torch; None if this version lacks it."""
    owner = torch
    for part in path.split("."):
        owner = getattr(owner, part, None)
    return owner


def _pass(state, result):
    pass


def _finish_with(torch, name):
    shown = NAMES.get(name, name)

    def finish(frame, start, duration, values):
        if static_access.own(values[0]).get("enabled") is False:
            return
        if duration >= SHORT_NS:
            write = journal.rare_span if duration >= LONG_NS else journal.span
            write(start, duration, 0, label(shown, frame), journal_format.PROFILER)
        if name in SWITCHING:
            # Not that it was started: a schedule skips most steps.
            settings_facts.look_at_profiler(torch)
        if name in ENTERING:
            profiler_window.give_way()
            guard.run("program_profiler_line", settings_facts.write_line, "user_profiler", frame)

    return finish
