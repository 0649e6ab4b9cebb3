"""The main training thread of the run."""

from __future__ import annotations

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer, find_trainers


def find_main_trainer(evidence: Evidence) -> Trainer | None:
    """Return the main training thread: the lowest rank, or without ranks the one with the most steps.

    If its rank was restarted, it is the start with the most steps.
    """
    able = evidence.get(find_trainers)
    if able and able[0].rank is not None:
        able = tuple(trainer for trainer in able if trainer.rank == able[0].rank)
    if len(able) == 1:
        return able[0]
    return max(able, key=lambda trainer: evidence.get(find_steps, trainer).count, default=None)
