"""Ends the recording in a program that perfwrap has attached to, when ``perfwrap attach`` ends.

``perfwrap attach`` holds a lock on a file; the system releases it however that process ends. Then the journal is closed
and torch's functions are as before. The program goes on, and perfwrap may attach to it again. If Dynamo has compiled
something meanwhile, the functions keep the recorder's code and pass all calls through: otherwise Dynamo might compile
them anew.
"""

from __future__ import annotations

import fcntl
import os
import sys

from perfwrap_recorder import guard
from perfwrap_recorder.instrumenting import instrument, tensor_methods
from perfwrap_recorder.journal import journal, lifecycle, paused_detail
from perfwrap_recorder.probes.loop import garbage
from perfwrap_recorder.probes.ranks import collectives

WATCHED = "watched"
"""The file, beside the settings."""

REPLACES = instrument, tensor_methods, collectives
"""The modules that replace something of torch's."""

_path = None


def prepare(settings):
    """Check from now on whether ``perfwrap attach`` still runs."""
    global _path
    _path = os.path.join(settings.data, WATCHED)
    journal.after_fork.add(look)
    journal.look_often(look)


def attach_again():
    """Switch the probes on again; the journal is open."""
    for part in REPLACES:
        part.reinstall()
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
    dynamo = sys.modules.get("torch._dynamo.utils")
    if not getattr(dynamo, "counters", {}).get("frames") and not getattr(dynamo, "_compilation_metrics", ()):
        for part in REPLACES:
            part.uninstall()
