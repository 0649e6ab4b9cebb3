"""Weights that are cast to another type again though they have not changed: autocast keeps casts until its end only."""

from __future__ import annotations

from collections.abc import Sequence

from perfwrap.measures.dataflow.dataflow import Dataflow
from perfwrap.measures.dataflow.waste import Waste

CAST = "_to_copy"


def split_casts(flow: Dataflow, repeated: Sequence[Waste]) -> tuple[list[Waste], list[Waste]]:
    """Return the repeated work that casts old memory, as one waste, and the rest.

    The backward of the casts is not wasted: each pass casts the gradient of its own micro-batch.
    """
    casts: set[int] = set()
    rest: list[Waste] = []
    for waste in repeated:
        forward = [number for number in waste.operations if flow.forward_of(number) is None]
        is_cast = bool(forward) and all(_casts_old(flow, number) for number in forward)
        if is_cast:
            casts.update(forward)
        else:
            rest.append(waste)
    if not casts:
        return [], rest
    numbers = sorted(casts)
    joined = Waste(
        tuple(numbers),
        flow.share(numbers),
        tuple(flow.lines(numbers)),
        tuple(flow.callers(numbers)),
        count=len(numbers),
    )
    return [joined], rest


def _casts_old(flow: Dataflow, number: int) -> bool:
    """Return whether an operation casts memory that is older than the window."""
    operation = flow.operations[number]
    if flow.name(number) != CAST or not operation.reads:
        return False
    storage = flow.window.value_storage[operation.reads[0]]
    return flow.window.storages[storage].first_step == 0
