"""Words about autograd graphs that are kept alive, for the rules about memory that grows."""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.kept_graphs import KeptGraphs
from perfwrap.rules.model import place

KINDS = {
    "backward": "tensors with which the backward pass begins",
    "forward": "results of the model's call",
    "inside": "graphs made within the model's call",
}


def words(kept: tuple[KeptGraphs, ...]) -> tuple[str, ...]:
    """Return a sentence for each line whose graphs were kept."""
    return tuple(
        f"Of {units.count(one.noted)} {KINDS[one.kind]} at {place(one.where, 'one line')} that were looked at, "
        f"{units.count(one.alive)} were still alive many steps later, with all that they hold of their step."
        for one in kept
    )


def advice(kept: tuple[KeptGraphs, ...]) -> str:
    """Return what to change about the first of them."""
    return (
        f"Something keeps what comes of {place(kept[0].where, 'that line')} with its autograd graph. Keep loss.item() "
        "or output.detach() instead, or compute it under torch.no_grad() where nothing trains on it."
    )
