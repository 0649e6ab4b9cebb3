"""What the rules share that also look at imported recordings without a training loop."""

from __future__ import annotations

from perfwrap.measures.evidence import Evidence
from perfwrap.rules.model import Clear, NotChecked

NO_RECORDING = NotChecked("Only for imported recordings without a training loop.")
"""The answer for runs of perfwrap in which nothing trained."""
TRAINS = Clear("Other rules look at the training loop.")
"""The answer for a training thread."""


def is_imported(evidence: Evidence) -> bool:
    """Return whether the files of other tools are read."""
    return "imported" in evidence.timeline.run
