"""Collects garbage once and calls ``gc.freeze()`` after a few steps: objects alive then are never scanned again."""

from __future__ import annotations

import gc

from perfwrap_recorder import journal_format
from perfwrap_recorder.journal import journal, step_ends

STEPS = 5
"""Steps before that: they create the long-lived objects."""


def install(torch, change):
    """Freeze after these steps."""

    def look(moment, is_step):
        is_ours = is_step and not done and journal.step_kind() != journal_format.FETCH
        if is_ours and journal.count_steps() >= STEPS:
            done.append(True)
            freeze(change)
        return False

    done = []
    step_ends.watch(change.key, look)


def freeze(change):
    """Freeze what is alive."""
    if not gc.isenabled():
        change.refuse("the program has switched garbage collection off")
        return
    gc.collect()
    gc.freeze()
    change.apply(None, "all objects are collected", "%d objects frozen" % gc.get_freeze_count())
