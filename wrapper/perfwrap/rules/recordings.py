"""What the rules share that also look at imported recordings without a training loop."""

from __future__ import annotations

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, NotChecked

NO_RECORDING = NotChecked("Only for imported recordings without a training loop.")
"""The answer for runs of perfwrap in which nothing trained."""


def is_imported(evidence: Evidence) -> bool:
    """Return whether the files of other tools are read."""
    return "imported" in evidence.timeline.run


def leave_training(evidence: Evidence, trainer: Trainer, limits: object) -> Answer:
    """Leave a training thread to the rules about it."""
    del evidence, trainer, limits
    return Clear("Other rules look at the training loop.")
