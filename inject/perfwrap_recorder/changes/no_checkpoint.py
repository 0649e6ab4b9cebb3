"""Writes no checkpoints: skips ``torch.save`` to files and similar calls; see ``experiments/skipped_writes.py``.

Refuses if a trial skips them anyway: then the baseline has none either.
"""

from __future__ import annotations

from perfwrap_recorder.experiments import skipped_writes
from perfwrap_recorder.journal import journal

SKIPPED = "a trial writes no checkpoints anyway: allow writes to learn what they cost"


def install(torch, change):
    """Skip them from now on."""
    settings = journal.settings
    if settings.trial_steps and settings.trial_writes != "allow":
        change.refuse(SKIPPED)
        return
    skipped_writes.install(torch, lambda frame, name: change.apply(frame, name, "left out"))
