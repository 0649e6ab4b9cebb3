"""Samples the lines of Python where that was asked for (``perfwrap run --sample``), see ``perfwrap_recorder.sampler``.

Replaces nothing. The user could notice a thread more in ``sys._current_frames()`` and in the process.
"""

from __future__ import annotations

import atexit

from perfwrap_recorder import guard, journal, sampler


def install(_):
    """Sample from now on, also in what this process forks."""
    hertz = getattr(journal.settings, "sample_hz", 0)
    if not hertz:
        return
    begin = guard.protect("sampler", lambda: sampler.start(hertz))
    begin()
    journal.after_fork.add(sampler.forget)
    journal.when_made.append(begin)
    atexit.register(guard.protect("sampler_end", sampler.stop))
