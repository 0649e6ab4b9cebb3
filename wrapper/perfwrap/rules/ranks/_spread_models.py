"""What the rules about models on several ranks share."""

from __future__ import annotations

from perfwrap.measures.account.loop_events import has_grad
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.concurrent_loops import find_concurrent_trainers
from perfwrap.measures.ranks.spread_models import find_spread_models
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import NotChecked


def calls_per_step(evidence: Evidence, trainer: Trainer) -> float:
    """Return the mean number of outermost module calls with gradients in a steady step with detail."""
    steps = evidence.get(find_steps, trainer)
    table = steps.table.filter("steady", "detailed")
    forward = steps.events.forward.only(has_grad(steps.events.forward))
    if table.is_empty():
        return 0.0
    ends = forward.start.searchsorted(table["end"].to_numpy())
    starts = forward.start.searchsorted(table["start"].to_numpy())
    return float((ends - starts).mean())


def least_exchange_ns(evidence: Evidence) -> float | NotChecked:
    """Return the time of the gradient exchange on the rank that waits least for others, as measured by DDP's logger."""
    exchanges = [
        model.exchange_ns
        for rank in evidence.get(find_concurrent_trainers)
        for model in evidence.get(find_spread_models, rank)
        if model.exchange_ns is not None
    ]
    if not exchanges:
        return NotChecked(
            "DDP's logger did not report the time of the gradient exchange; it measures only some steps."
        )
    return min(exchanges)
