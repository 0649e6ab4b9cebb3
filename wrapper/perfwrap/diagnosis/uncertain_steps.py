"""Sentences about the number of steps where it is not certain."""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer, find_trainers

UNCLOSED = "ended without closing its journal"
"""How the note on the journal of such a process begins."""
MAX_MISSING = 128
"""Steps that are only counted are written at least that often."""


def uncertain_steps(evidence: Evidence) -> tuple[str, ...]:
    """Return a warning if the number of steps is estimated, and one if the last steps may be missing."""
    trainers = evidence.get(find_trainers)
    estimated = [trainer for trainer in trainers if evidence.get(find_steps, trainer).is_estimated]
    cut_off = [trainer for trainer in trainers if _is_cut_off(evidence, trainer)]
    found = []
    if estimated:
        found.append(
            f"The number of steps of {_processes(estimated, len(trainers))} is estimated: most were only counted, and "
            "nothing that is counted occurs exactly once in each step."
        )
    if cut_off:
        found.append(
            f"At most {MAX_MISSING} of the last steps of {_processes(cut_off, len(trainers))} may be missing: killed, "
            "or ended by os._exit, while steps were only counted."
        )
    return tuple(found)


def _is_cut_off(evidence: Evidence, trainer: Trainer) -> bool:
    """Return whether a process of a run that is over did not close its journal, and its last steps were counted."""
    timeline = evidence.timeline
    if not timeline.run.get("end"):
        return False
    notes = timeline.coverage.filter(pl.col("track") == trainer.process)["note"].drop_nulls()
    paused = timeline.sums.filter(pl.col("track") == trainer.thread, "rest")
    return bool(notes.str.starts_with(UNCLOSED).any()) and not paused.is_empty()


def _processes(trainers: list[Trainer], of: int) -> str:
    return (
        "the training process"
        if of == 1
        else units.counted(len(trainers), "training process", "training processes")
    )
