"""Leaves out the writing of checkpoints: ``torch.save`` to files and its kin; see ``perfwrap_recorder.held_writes``.

Refuses where a trial holds them back anyway: there the baseline has none either.
"""

from __future__ import annotations

from perfwrap_recorder import held_writes, journal

HELD = "a trial writes no checkpoints anyway: allow writes to learn what they cost"


def install(torch, change):
    """Write none from now on."""
    settings = journal.settings
    if settings.trial_steps and settings.trial_writes != "allow":
        change.refuse(HELD)
        return
    held_writes.hold_back(torch, lambda frame, name: change.apply(frame, name, "left out"))
