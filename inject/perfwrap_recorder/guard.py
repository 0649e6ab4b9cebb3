"""Run a probe's code; what it raises becomes a record and never reaches the program.

A probe that has raised once is not run again in this process; the other probes go on. What a signal handler of the
program raises meanwhile is passed on to the program.
"""

from __future__ import annotations

from perfwrap_recorder import redaction, signal_handlers
from perfwrap_recorder.journal import journal, paused_detail, switching

failed = {}  # name of a probe -> what it raised


def run(probe, function, *arguments):
    """Return what the function returns; None if it raises, or if this probe has raised before."""
    if probe in failed:
        return None
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - one of three broad excepts: the user's program comes first
        if signal_handlers.raised(error):
            raise
        failed[probe] = "%s: %s" % (type(error).__name__, error)
        _report(probe)
        return None


def protect(probe, function):
    """Return the function as one that never raises an Exception."""

    def protected(*arguments):
        return run(probe, function, *arguments)

    return protected


def _report(probe):
    """Write that the probe records nothing any more."""
    try:
        journal.uncover("probe/" + probe, "failed: " + redaction.masked(failed[probe]))
    except Exception:  # noqa: BLE001, S110 # nosec B110 # the journal itself has failed
        pass


def ask_journal():
    """Have the journal decide what follows paused detail; probes call this while the program runs."""
    run("paused_detail", switching.look_at_pause)


paused_detail.ask = ask_journal
