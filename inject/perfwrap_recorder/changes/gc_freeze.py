"""Collects garbage once and calls ``gc.freeze()`` after a few steps: what is alive by then is never looked at again."""

from __future__ import annotations

import gc

from perfwrap_recorder import journal, step_ends

STEPS = 5
"""So many steps come first: they make what lives on."""


def install(torch, change):
    """Freeze when the time has come."""

    def look(moment, is_step):
        if is_step and not change.count and journal.step_kind() != journal.FETCH:
            if journal.count_steps() >= STEPS:
                gc.collect()
                gc.freeze()
                change.apply(None, "all objects collected", "%d objects frozen" % gc.get_freeze_count())
        return False

    if not gc.isenabled():
        change.refuse("the program collects no garbage")
        return
    step_ends.watch(change.key, look)
