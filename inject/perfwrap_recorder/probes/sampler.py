"""Samples the lines of Python, see ``perfwrap_recorder.sampler``: half a minute of training, or as was asked for.

Unless ``perfwrap run --sample`` says otherwise, only the thread that trains is looked at, once the first steps are
over and as often as it takes to tell in which lines of the model or of the loop most of the time goes.

Replaces nothing. The user could notice a thread more in ``sys._current_frames()`` and in the process. Forks are not
to notice it: Python 3.12 and later warn of a fork while there are several threads. It ends before each fork, and there
is none where it would be the second thread of a program on such a Python.
"""

from __future__ import annotations

import atexit
import os
import sys

from perfwrap_recorder import guard, journal, journal_format, sampler

HERTZ = 20
MOST = 600
"""So often, and so many times, is looked where the training thread is."""
FIRST_STEPS = 3
"""Steps that are not looked at: what happens once tells nothing of those that follow."""
WARNS_OF_FORKS = 3, 12
PATCHED = ("gevent", "eventlet")
"""What may have made something else of threads and locks."""

_left = [MOST]


def install(_):
    """Sample from now on where that was asked for, also in what this process forks; else when it trains."""
    hertz = getattr(journal.settings, "sample_hz", 0)
    if hertz:
        begin = guard.protect("sampler", lambda: _sample(hertz))
        begin()
        journal.when_made.append(begin)
    elif getattr(journal.settings, "glance", False):
        journal.look_often(look)
        os.register_at_fork(before=guard.protect("sampler", _end_before_fork))
    else:
        return
    journal.after_fork.add(sampler.forget)
    atexit.register(guard.protect("sampler_end", sampler.stop))


def _sample(hertz):
    if sampler.start(hertz):
        journal.cover("probe/sampler", "%g Hz" % hertz)


def look():
    """Begin to sample this thread if it is the one that trains."""
    guard.run("sampler", _begin)


def _begin():
    # What ends the steps of a DataLoader's worker is that a batch is made.
    if journal.count_steps() < FIRST_STEPS or journal.step_kind() > journal_format.OPTIMIZER:
        return
    journal.look_no_more(look)
    if any(name in sys.modules for name in PATCHED):
        return
    if sys.version_info >= WARNS_OF_FORKS and len(os.listdir("/proc/self/task")) == 1:
        journal.uncover(
            "probe/sampler", "the program has one thread, and would have two: Python warns of forks then"
        )
        return
    if sampler.start(HERTZ, _left[0], alone=True) and _left[0] == MOST:
        journal.cover("probe/sampler", "%g Hz, %d times" % (HERTZ, MOST))


def _end_before_fork():
    """End the thread, and have it begin again where training goes on."""
    taken = sampler.stop()
    if taken is not None:
        _left[0] -= taken
        if _left[0] > 0:
            journal.look_often(look)
