"""Run a probe's code; whatever it raises becomes a record, never the user's problem.

What has raised once is not run again in this process: the other probes go on. What a signal handler of the program's
raises meanwhile is the program's, and goes its way.
"""

from __future__ import annotations

from perfwrap_recorder import handlers, journal, redaction, rest

failed = {}  # name of a probe -> what it raised


def run(probe, function, *arguments):
    """Return what the function returns; None when it raises, or when this probe has raised before."""
    if probe in failed:
        return None
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - one of three broad excepts: the user's program comes first
        if handlers.raised(error):
            raise
        failed[probe] = "%s: %s" % (type(error).__name__, error)
        _tell(probe)
        return None


def protect(probe, function):
    """Return the function as one that never raises an Exception."""

    def protected(*arguments):
        return run(probe, function, *arguments)

    return protected


def _tell(probe):
    """Say that the probe watches nothing any more."""
    try:
        journal.uncover("probe/" + probe, "failed: " + redaction.masked(failed[probe]))
    except Exception:  # noqa: BLE001, S110 # nosec B110 # a journal that cannot be written to has said so already
        pass


def ask_journal():
    """Have the journal say what follows a rest; probes call this in the midst of the program."""
    run("rest", journal.look_at_rest)


rest.ask = ask_journal
