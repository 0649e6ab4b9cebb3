"""Ends the recording in a program that perfwrap has attached to, when ``perfwrap attach`` ends.

``perfwrap attach`` holds a lock on a file; the system releases it however that process ends. Then the journal is closed
and all probes are switched off. The program goes on, and perfwrap may attach to it again.
"""

from __future__ import annotations

import fcntl
import os

from perfwrap_recorder import guard
from perfwrap_recorder.journal import journal, lifecycle, paused_detail
from perfwrap_recorder.probes.loop import garbage

WATCHED = "watched"
"""The file, beside the settings."""

_path = None


def prepare(settings):
    """Check from now on whether ``perfwrap attach`` still runs."""
    global _path
    _path = os.path.join(settings.data, WATCHED)
    journal.after_fork.add(look)
    journal.look_often(look)


def attach_again():
    """Switch the probes on again; the journal is open."""
    paused_detail.switch_all_on()
    garbage.install(None)


def _look():
    if not is_watched(_path):
        detach()


look = guard.protect("detaching", _look)


def is_watched(path):
    """Return whether a process holds the lock; false if the file is gone."""
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


def detach():
    """Stop recording."""
    lifecycle.detach()
    paused_detail.switch_all_off()
    garbage.stop()
