"""What rules about models that are spread over ranks have in common."""

from __future__ import annotations

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop_events import has_grad
from perfwrap.measures.trainers import Trainer


def calls_per_step(evidence: Evidence, trainer: Trainer) -> float:
    """Return how many outermost module calls with gradients there are in a steady step that stands in detail."""
    steps = evidence.steps(trainer)
    table = steps.table.filter("steady", "detailed")
    forward = steps.events.forward.only(has_grad(steps.events.forward))
    if table.is_empty():
        return 0.0
    ends = forward.start.searchsorted(table["end"].to_numpy())
    starts = forward.start.searchsorted(table["start"].to_numpy())
    return float((ends - starts).mean())
