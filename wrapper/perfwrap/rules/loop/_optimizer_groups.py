"""Optimizers that have the same fix, as one: for the rule about slow optimizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from perfwrap.measures.loop.optimizers import OptimizerUse
from perfwrap.rules.model import place

TORCH_OPTIM = "torch.optim."
"""Prefix of the classes of torch's own optimizers, which have the same options."""


def alike(
    slow: Sequence[OptimizerUse], large: Mapping[str, tuple[float, float] | None]
) -> list[tuple[OptimizerUse, ...]]:
    """Return the optimizers in groups that have the same fix: those of torch of one class and with the same options."""
    groups: dict[object, tuple[OptimizerUse, ...]] = {}
    for use in slow:
        is_torchs = use.kind.startswith(TORCH_OPTIM)
        key = (use.kind, use.foreach, large.get(use.name)) if is_torchs else use.name
        groups[key] = (*groups.get(key, ()), use)
    return sorted(groups.values(), key=share_of, reverse=True)


def share_of(uses: Sequence[OptimizerUse]) -> float:
    """Return the share of the loop of all."""
    return sum(use.share for use in uses)


def together(uses: Sequence[OptimizerUse]) -> OptimizerUse:
    """Return one optimizer with the figures of all."""
    tensors, elements = ([getattr(use, name) for use in uses] for name in ("tensors", "elements"))
    return replace(
        uses[0],
        ns=sum(use.ns for use in uses),
        ns_per_step=sum(use.ns_per_step for use in uses),
        share=share_of(uses),
        tensors=None if None in tensors else sum(tensors),
        elements=None if None in elements else sum(elements),
    )


def places_of(uses: Sequence[OptimizerUse]) -> str:
    """Return the lines of the steps: ``train.py:7``, ``train.py:7 and train.py:9``."""
    *most, last = dict.fromkeys(place(use.where, "one line") for use in uses)
    return f"{', '.join(most)} and {last}" if most else last
