"""The recorder: runs inside the user's processes, standard library only, Python 3.8 and later."""

from __future__ import annotations

import os
import sys
import time
from importlib import import_module

from perfwrap_recorder import (
    guard,
    journal,
    journal_format,
    on_import,
    probes,
    ptracer,
    redaction,
    roles,
    thinning,
)

_role = roles.Role("main")
"""What this process is."""


def start(settings):
    """Open the journal and get the probes ready; called once, when torch is about to be imported.

    Raises OSError when there can be no journal: then there is no recorder.
    """
    global _role
    began_ns = time.monotonic_ns()
    journal.open_current(settings)
    _role = roles.find_role(roles.find_argv())
    if sys._perfwrap != os.getpid():  # forked by a process that had not asked for torch: it has no line yet
        _role = roles.find_forked_role(_role)
        _note_fork()
    guard.run("facts", _write_facts)
    journal.when_made.append(guard.protect("facts", _write_facts))
    guard.run("ptracer", ptracer.allow_asked)
    journal.when_made.append(guard.protect("ptracer", ptracer.allow_asked))
    os.register_at_fork(after_in_child=guard.protect("fork", _begin_in_child))
    if not _role.inert:
        _watch_import()
        if settings.changes or settings.trial_steps:
            thinning.may_rest = False  # every step and every module is to be seen
        if settings.changes:
            guard.run("changes", _prepare_changes, settings.changes)
        if settings.trial_steps:
            guard.run("trial", _prepare_trial, settings)
        if settings.watched:
            guard.run("leaving", _prepare_leaving, settings)
    _write_own_time("start", began_ns)


def start_again(settings):
    """Open another journal where the recorder has left the program to itself; raises OSError where it cannot."""
    global _role
    from perfwrap_recorder import leaving

    began_ns = time.monotonic_ns()
    journal.open_again(settings)
    _role = roles.find_role(roles.find_argv())
    leaving.prepare(settings)
    leaving.come_back()
    guard.run("facts", _write_facts)
    _write_own_time("start", began_ns)


def _watch_import():
    """Record each import of torch and, apart from it, what the probes do at its end."""
    began_ns = [] if on_import.imported("torch") else [time.monotonic_ns()]
    ended_ns = []

    def begin():
        began_ns[:] = [time.monotonic_ns()]

    def end(torch):
        ended_ns[:] = [time.monotonic_ns()]
        if began_ns:
            duration_ns = ended_ns[0] - began_ns[0]
            journal.record(began_ns[0], duration_ns, 0, journal.text("torch"), journal_format.IMPORT)

    def installed(torch):
        _write_own_time("install", ended_ns[0])

    on_import.before("torch", begin)
    on_import.after("torch", guard.protect("import", end))
    _prepare(probes.PROBES)
    on_import.after("torch", guard.protect("import", installed))


def _prepare_changes(words):
    """Have the program changed as these words say; none of it is loaded otherwise."""
    from perfwrap_recorder import changes

    changes.prepare(words)


def _prepare_trial(settings):
    """Have this process end itself once it has made enough steps."""
    from perfwrap_recorder import trial

    trial.prepare(settings)


def _prepare_leaving(settings):
    """Record as long as somebody watches."""
    from perfwrap_recorder import leaving

    leaving.prepare(settings)


def _prepare(names):
    """Register the hooks of each probe: those for modules that torch imports, then those for its end."""
    modules = [(name, guard.run(name, import_module, "perfwrap_recorder.probes." + name)) for name in names]
    for name, module in modules:
        for awaited, function in getattr(module, "MODULES", {}).items():
            on_import.after(awaited, guard.protect(name, function))
    for name, module in modules:
        if hasattr(module, "install"):
            on_import.after("torch", guard.protect(name, module.install))


def _begin_in_child():
    """Give the child of a fork its start record; journal and facts come when it has something to say."""
    global _role
    if not journal.has_left:
        journal.begin_in_child()
    if journal.has_left:
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


def _write_own_time(name, began_ns):
    text = journal.text(name)
    journal.record(began_ns, time.monotonic_ns() - began_ns, 0, text, journal_format.PERFWRAP)
