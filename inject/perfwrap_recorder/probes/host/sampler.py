"""Samples lines of Python if requested (``perfwrap run --sample``), see ``stack_sampler.py``.

Replaces nothing. The user could notice one more thread in ``sys._current_frames()`` and in the process.
"""

from __future__ import annotations

import atexit

from perfwrap_recorder import guard
from perfwrap_recorder.journal import journal
from perfwrap_recorder.probes.host import stack_sampler


def install(_):
    """Start sampling, also in children of fork."""
    hertz = getattr(journal.settings, "sample_hz", 0)
    if not hertz:
        return
    begin = guard.protect("sampler", lambda: stack_sampler.start(hertz))
    begin()
    journal.after_fork.add(stack_sampler.forget)
    journal.when_made.append(begin)
    atexit.register(guard.protect("sampler_end", stack_sampler.stop))
