"""Words about autograd graphs that are kept alive, for the rules about memory that grows."""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.kept_graphs import KeptGraphs
from perfwrap.rules.model import place

KINDS = {"forward": "results of the model's call", "backward": "tensors with which the backward pass begins"}


def words(kept: tuple[KeptGraphs, ...]) -> tuple[str, ...]:
    """Return a sentence for each line whose graphs were kept."""
    return tuple(
        f"Of {units.count(one.noted)} {KINDS.get(one.kind, 'tensors')} at {place(one.where, 'one line')} that were "
        f"looked at, {units.count(one.alive)} still had their autograd graph many steps later."
        for one in kept
    )


def advice(kept: tuple[KeptGraphs, ...]) -> str:
    """Return what to change about the first of them."""
    return (
        f"Something keeps what comes of {place(kept[0].where, 'that line')} with its autograd graph, and so all that "
        "the graph holds of its step. Keep loss.item() or output.detach() instead, or compute it under "
        "torch.no_grad() where nothing trains on it."
    )
