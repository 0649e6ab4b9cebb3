"""Sorts of whole rows of which only the first or the last entries are read: top-k finds those alone."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from perfwrap.measures.dataflow.dataflow import Dataflow
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.timeline.operation_window import BACKWARD, DATA, NEW, OPTIMIZER, READ, Geometry

MAX_READ = 0.25
"""Part of the entries up to which top-k is certainly faster than a sort."""
FEW_READ, SAVED_OF_FEW = 0.125, 0.85
"""Part of a sort's time that top-k saves for at most FEW_READ of the entries, forward and backward."""
SAVED = 0.65
"""The same for up to MAX_READ."""
STABLE_SORT = "stable"
"""The overload of a sort that keeps the order of equal entries, which top-k does not."""
COPIES_OF_MEMORY = ("numpy", "tolist")
"""Reads of the program that see no more than the tensor itself."""


def find_full_sorts(flow: Dataflow, known: Collection[int]) -> list[Waste]:
    """Return the sorts of which few entries are read, as one waste, without operations in ``known``."""
    found: dict[int, float] = {}
    for number in flow.step:
        if number in flow.window.sorts and number not in known:
            part = _part_read(flow, number)
            if part is not None and part <= MAX_READ:
                found[number] = part
    if not found:
        return []
    whole: list[int] = []
    share = 0.0
    for number, part in found.items():
        mine = flow.with_backward((number,))
        whole += mine
        share += (SAVED_OF_FEW if part <= FEW_READ else SAVED) * flow.share(mine)
    return [
        Waste(
            tuple(whole),
            share,
            tuple(flow.lines(found)),
            tuple(flow.callers(found)),
            count=len(found),
            used=max(found.values()),
        )
    ]


def _part_read(flow: Dataflow, number: int) -> float | None:
    """Return the part of each sorted row that is read, from one end; None if all of it is or that is unknown."""
    operation, window = flow.operations[number], flow.window
    overload = window.functions[operation.function].overload.rpartition(".")[2]
    if flow.has(number, BACKWARD | OPTIMIZER | DATA) or overload == STABLE_SORT:
        return None
    lows, highs, size = [], [], 0
    for value, made, how in operation.outputs():
        base = window.geometries[made]
        dimension = window.sorts[number] % len(base.shape) if base.shape else 0
        if how != NEW or value in flow.last_values or flow.writers[window.value_storage[value]]:
            return None
        for reader, shown in flow.readers[value]:
            is_own = flow.has(reader, BACKWARD) and flow.forward_of(reader) == number
            if (
                flow.is_view(reader) or is_own
            ):  # its backward needs the positions of the entries that are read
                continue
            if flow.has(reader, READ) and flow.name(reader) not in COPIES_OF_MEMORY:
                return None
            reach = _reach(window.geometries[shown], base, dimension)
            if reach is None:
                return None
            lows.append(reach[0])
            highs.append(reach[1])
            size = base.shape[dimension]
    if not size:
        return None
    return min(max(highs) + 1, size - min(lows)) / size


def _reach(view: Geometry, base: Geometry, dimension: int) -> tuple[int, int] | None:
    """Return the first and last place in a dimension of ``base`` that a view of it shows; None if that is unknown."""
    strides = [prod(base.shape[place + 1 :]) for place in range(len(base.shape))]
    if base.offset or base.stride != strides:
        return None
    inner = strides[dimension]
    whole = inner * base.shape[dimension]
    first, behind = divmod(view.offset % whole, inner)
    last = first
    for size, stride in zip(view.shape, view.stride, strict=True):
        if size < 2 or stride % whole == 0:
            continue
        if stride < inner:
            behind += (size - 1) * stride
        elif stride % inner == 0:
            last += (size - 1) * (stride // inner)
        else:
            return None
    return (first, last) if behind < inner and last < base.shape[dimension] else None
