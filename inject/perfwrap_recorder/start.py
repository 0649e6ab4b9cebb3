"""Start the recorder in this process: open the journal, say who the process is, get the probes ready."""

from __future__ import annotations

import os
import sys
import time
from importlib import import_module

# First, so that the standard library's modules are always imported in the same order.
from perfwrap_recorder.journal import lifecycle

# isort: split
from perfwrap_recorder import guard, journal_format, on_import, probes, ptracer, redaction, roles
from perfwrap_recorder.journal import journal, thinning
from perfwrap_recorder.uncollected import uncollected

_role = roles.Role("main")
"""What this process is."""


def start(settings):
    """Open the journal and get the probes ready; called once, when torch is about to be imported.

    Raises OSError if there can be no journal: then there is no recorder.
    """
    global _role
    began = _times()
    lifecycle.open_current(settings)
    _role = roles.find_role(roles.find_argv())
    if sys._perfwrap != os.getpid():  # forked before torch was imported: it has no line yet
        _role = roles.find_forked_role(_role)
        _note_fork()
    guard.run("facts", _write_facts)
    journal.when_made.append(guard.protect("facts", _write_facts))
    guard.run("ptracer", ptracer.allow_asked)
    journal.when_made.append(guard.protect("ptracer", ptracer.allow_asked))
    os.register_at_fork(after_in_child=guard.protect("fork", _begin_in_child))
    if not _role.inert:
        _watch_import()
        if settings.changes or settings.trial_steps or settings.inspect:
            thinning.may_pause = False  # every step and every module must be recorded
        if settings.changes:
            guard.run("changes", _prepare_changes, settings.changes)
        if settings.inspect:
            guard.run("dataflow", _prepare_dataflow)
        if settings.trial_steps:
            guard.run("trial", _prepare_trial, settings)
        if settings.watched:
            guard.run("detaching", _prepare_detaching, settings)
    _write_own_time("start", began)


def start_again(settings):
    """Open another journal after the recorder was detached; raises OSError if there can be none."""
    global _role
    from perfwrap_recorder import detaching

    began = _times()
    lifecycle.open_again(settings)
    _role = roles.find_role(roles.find_argv())
    detaching.prepare(settings)
    detaching.attach_again()
    guard.run("facts", _write_facts)
    _write_own_time("start", began)


def _watch_import():
    """Record each import of torch and, separately, the work of the probes at its end."""
    began_ns = [] if on_import.imported("torch") else [time.monotonic_ns()]
    ended = []

    def begin():
        began_ns[:] = [time.monotonic_ns()]

    def end(torch):
        ended[:] = [_times()]
        if began_ns:
            duration_ns = ended[0][0] - began_ns[0]
            journal.record(began_ns[0], duration_ns, 0, journal.text("torch"), journal_format.IMPORT)

    def installed(torch):
        _write_own_time("install", ended[0])

    on_import.before("torch", begin)
    on_import.after("torch", guard.protect("import", end))
    _prepare(probes.PROBES)
    on_import.after("torch", guard.protect("import", installed))


def _prepare_changes(words):
    """Prepare the changes of an experiment; they are loaded for experiments only."""
    from perfwrap_recorder import changes

    changes.prepare(words)


def _prepare_trial(settings):
    """Prepare to end this process after enough steps."""
    from perfwrap_recorder.experiments import trial

    trial.prepare(settings)


def _prepare_dataflow():
    """Prepare the dataflow windows; they are loaded for ``perfwrap inspect`` only."""
    from perfwrap_recorder.dataflow import operation_windows

    operation_windows.prepare()


def _prepare_detaching(settings):
    """Record as long as ``perfwrap attach`` runs."""
    from perfwrap_recorder import detaching

    detaching.prepare(settings)


def _prepare(paths):
    """Register the hooks of each probe: those for modules that torch imports, then those for its end."""
    modules = [_load(path.rpartition(".")[2], path) for path in paths]
    for name, module in modules:
        for awaited, function in getattr(module, "MODULES", {}).items():
            on_import.after(awaited, uncollected(guard.protect(name, function)))
    for name, module in modules:
        if hasattr(module, "install"):
            on_import.after("torch", uncollected(guard.protect(name, module.install)))


def _load(name, path):
    return name, guard.run(name, import_module, "perfwrap_recorder.probes." + path)


def _begin_in_child():
    """Write the start record of the child of a fork; its journal and facts come with its first record."""
    global _role
    if not journal.is_detached:
        lifecycle.begin_in_child()
    if journal.is_detached:
        return
    _role = roles.find_forked_role(_role)
    _note_fork()


def _note_fork():
    sys._perfwrap = os.getpid()
    on_import.note("fork")


def _write_facts():
    rank, local_rank, world_size = roles.find_ranks(os.environ)
    facts = {
        "role": _role.name,
        "argv": "\x1f".join(redaction.masked_words(roles.find_argv())),
        "executable": sys.executable,
        "python": "%d.%d.%d" % sys.version_info[:3],
        "ppid": os.getppid(),
        "rank": rank,
        "local_rank": local_rank,
        "world_size": world_size,
        "restart_count": os.environ.get("TORCHELASTIC_RESTART_COUNT"),
    }
    for key, value in facts.items():
        if value is not None:
            journal.fact(key, str(value))


def _times():
    """Return the time and the CPU time of this thread, in nanoseconds."""
    return time.monotonic_ns(), time.thread_time_ns()


def _write_own_time(name, began):
    text = journal.text(name)
    duration, computed = (now - then for now, then in zip(_times(), began))  # noqa: B905 - Python 3.8
    journal.record(began[0], duration, max(1, computed), text, journal_format.PERFWRAP)
