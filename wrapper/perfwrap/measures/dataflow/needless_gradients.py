"""Gradients that nothing uses: of a part that is not trained, or of weights that another pass sets to zero."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from perfwrap.measures.account.lines import Line
from perfwrap.measures.dataflow.dataflow import MAX_LINES, Dataflow
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.timeline.operation_window import BACKWARD, DATA, OPTIMIZER, RANDOM, VIEW

MOST = 0.7
"""Part of a line's time whose gradients are unused for the line to be the one to change; the rest has none."""

BATCH, STATE, NOISE = 1, 2, 4
"""What a value follows from: the batch, memory that training writes, random numbers."""


def split_by_training(flow: Dataflow, unused: Sequence[Waste]) -> tuple[list[Waste], list[Waste]]:
    """Return the unused gradients of parts that are not trained, and those of parts that are."""
    untrained = find_untrained(flow)
    frozen: list[Waste] = []
    trained: list[Waste] = []
    for waste in unused:
        mine = [number for number in waste.operations if not untrained.isdisjoint(_forwards(flow, number))]
        rest = [number for number in waste.operations if number not in set(mine)]
        part = waste.share / (flow.share(waste.operations) or 1.0)  # of some only a half is unused
        for numbers, found in ((mine, frozen), (rest, trained)):
            if numbers:
                found.append(
                    Waste(
                        tuple(numbers),
                        part * flow.share(numbers),
                        _lines(flow, numbers, waste.other if found is trained else None),
                        waste.callers,
                        other=waste.other,
                        in_backward=True,
                    )
                )
    return frozen, trained


def _lines(flow: Dataflow, numbers: Sequence[int], caller: Line | None) -> tuple[Line, ...]:
    """Return the lines to change: the backward call of a part that is trained, or the calls of one that is not."""
    forward = {each for number in numbers if (each := flow.forward_of(number)) is not None}
    roots = flow.roots(forward, MOST)
    costs: Counter[Line] = Counter()
    for number in numbers:
        root = roots.get(flow.forward_of(number) or -1)
        if root is not None:
            costs[root] += flow.cost(number)  # type: ignore[assignment]
    found = [line for line, _ in costs.most_common(MAX_LINES)] or flow.lines(numbers)
    return tuple(dict.fromkeys([caller, *found] if caller is not None and caller.file else found))


def _forwards(flow: Dataflow, number: int) -> set[int]:
    """Return the forward operations of a gradient; those of what it accumulates if it has none of its own."""
    forward = flow.forward_of(number)
    if forward is not None:
        return {forward}
    makers = [flow.window.value_operation[value] for value in flow.operations[number].reads[::2]]
    found = [flow.forward_of(maker) for maker in makers if maker >= flow.first]
    return {forward for forward in found if forward is not None}


def find_untrained(flow: Dataflow) -> set[int]:
    """Return the forward operations of the step that follow from the batch and from nothing that training changes."""
    taint: dict[int, int] = {}
    found = set()
    for number in flow.step:
        operation = flow.operations[number]
        mine = 0
        for value in operation.reads[::2]:
            mine |= taint[value] if value in taint else _origin(flow, value)
        if operation.flags & DATA:
            mine |= BATCH
        if operation.flags & RANDOM:
            mine |= NOISE if operation.reads else BATCH
        for value, _, how in operation.outputs():
            if how != VIEW:
                taint[value] = mine
        if mine in (0, BATCH, NOISE, BATCH | NOISE) and not operation.flags & (BACKWARD | OPTIMIZER | DATA):
            found.add(number)
    return found


def _origin(flow: Dataflow, value: int) -> int:
    """Return what a value follows from that no operation of the step made."""
    window = flow.window
    storage = window.value_storage[value]
    if window.value_operation[value] != -1:
        return STATE
    if window.storages[storage].first_step >= 1:
        return BATCH
    return STATE if flow.writers.get(storage) else 0
