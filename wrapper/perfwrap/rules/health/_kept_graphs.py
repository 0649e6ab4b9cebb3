"""Sentences about autograd graphs that are kept alive, for the rules about growing memory."""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.health.kept_graphs import KeptGraphs
from perfwrap.rules.model import place

KINDS = {
    "backward": "tensors on which backward() is called",
    "forward": "outputs of the model",
    "inside": "graphs made inside the model's call",
}


def words(kept: tuple[KeptGraphs, ...]) -> tuple[str, ...]:
    """Return a sentence for each line whose graphs are kept."""
    return tuple(
        f"{units.count(one.alive)} of {units.count(one.noted)} checked {KINDS[one.kind]} at "
        f"{place(one.where, 'one line')} were still alive many steps later, with everything that they hold."
        for one in kept
    )


def advice(kept: tuple[KeptGraphs, ...]) -> str:
    """Return what to change about the first of them."""
    return (
        f"Keep loss.item() or output.detach() instead of the tensor from {place(kept[0].where, 'that line')}, which "
        "holds its autograd graph; or compute it under torch.no_grad() if it is not trained on."
    )
