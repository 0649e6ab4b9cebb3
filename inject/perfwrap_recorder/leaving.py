"""Ends the recording of a program that was attached to, when nobody watches it any more.

Who watches holds a lock on a file, which the system takes from him however he ends. Then the journal says goodbye,
and the probes let all calls pass. The program goes on, and may be watched again.
"""

from __future__ import annotations

import fcntl
import os

from perfwrap_recorder import guard, journal, rest
from perfwrap_recorder.probes import garbage

WATCHED = "watched"
"""The file, beside the settings."""

_path = None


def prepare(settings):
    """Have an eye on the watcher from now on."""
    global _path
    _path = os.path.join(settings.data, WATCHED)
    journal.after_fork.add(look)
    journal.look_often(look)


def come_back():
    """Have the probes note everything again; the journal is open."""
    rest.come_back()
    garbage.install(None)


def _look():
    if not is_watched(_path):
        leave()


look = guard.protect("leaving", _look)


def is_watched(path):
    """Say whether somebody holds the lock; a file that is gone is held by nobody."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return True  # a file system without locks: the budget of the journal bounds it
    else:
        return False
    finally:
        os.close(descriptor)


def leave():
    """Record nothing any more."""
    journal.leave()
    rest.leave()
    garbage.stop()
