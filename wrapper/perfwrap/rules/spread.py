"""What rules about models that are spread over ranks have in common."""

from __future__ import annotations

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop_events import has_grad
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import NotChecked


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


def least_exchange_ns(evidence: Evidence) -> float | NotChecked:
    """Return what exchanging gradients takes on the rank that waits least for others, as DDP's own logger measured."""
    exchanges = [
        model.exchange_ns
        for rank in evidence.at_once
        for model in evidence.spread_models(rank)
        if model.exchange_ns is not None
    ]
    if not exchanges:
        return NotChecked(
            "DDP did not tell how long gradients are exchanged, which it measures in some steps."
        )
    return min(exchanges)
