"""Operations that compute in each step what never changes.

Their inputs derive only from tensors and numbers that are the same in every step: not from the batch, from trained
parameters, or from random numbers. The recorder confirms it: the checksums of their results are equal in the second and
third step of all windows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from perfwrap.measures.dataflow.dataflow import Dataflow
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.timeline.operation_window import (
    BACKWARD,
    CONVERT,
    DATA,
    OPTIMIZER,
    RANDOM,
    VIEW,
    OperationWindow,
)

Sums = dict[tuple[object, ...], tuple[tuple[int, ...], int]]


def find_unchanging(flow: Dataflow, dead: Collection[int]) -> tuple[list[Waste], set[int]]:
    """Return the wastes by function, and all unchanging operations."""
    known = _confirmed(flow, dead)
    for number in sorted(known, reverse=True):
        if not (_is_refilled_or_used(flow, number, known)):
            continue
        known.discard(number)
    groups = defaultdict(list)
    roots = flow.roots(known)
    for number in sorted(known):
        groups[roots[number].file, roots[number].function].append(number)
    return [
        Waste(
            tuple(numbers),
            flow.share(numbers),
            flow.lines_of(roots, numbers),
            tuple(flow.callers(numbers)),
            converted=any(flow.has(number, CONVERT) for number in numbers),
        )
        for numbers in groups.values()
    ], known


def _confirmed(flow: Dataflow, dead: Collection[int]) -> set[int]:
    """Return the stable operations whose results have equal checksums in all steps."""
    window = flow.window
    sums = [_sums(flow, flow, window, 2)]
    for other in flow.others:
        sums += [_sums(flow, Dataflow(other), other, step) for step in (1, 2)]
    here = _sums(flow, flow, window, 1)
    found = set()
    for number in flow.step:
        operation = flow.operations[number]
        if not flow.is_stable(number) or number in dead or not operation.writes:
            continue
        if (
            flow.has(number, BACKWARD | OPTIMIZER | DATA | RANDOM)
            or window.functions[operation.function].is_empty
        ):
            continue
        if any(not window.value_sums.get(value) for value in flow.made(number)):
            continue  # not confirmed
        signature = flow.signature(number)
        if all(each.get(signature) == here.get(signature) for each in sums):
            found.add(number)
    return found


def _sums(base: Dataflow, flow: Dataflow, window: OperationWindow, step: int) -> Sums:
    """Return the checksums of the stable operations of a step, by signature, and the hash of their other arguments."""
    found: Sums = {}
    for number in range(window.first_operations[step], window.first_operations[step + 1]):
        operation = window.operations[number]
        if flow.is_stable(number) and not operation.flags & (BACKWARD | OPTIMIZER | DATA):
            sums = tuple(
                window.value_sums.get(value, 0) for value, _, how in operation.outputs() if how != VIEW
            )
            found[flow.signature(number)] = sums, operation.scalars
    return found


def _is_refilled_or_used(flow: Dataflow, number: int, known: Collection[int]) -> bool:
    """Return whether an operation must stay: its memory is filled with something else later, or a view is needed."""
    operation = flow.operations[number]
    if not flow.is_view(number):
        storages = {flow.window.value_storage[value] for value in flow.made(number)}
        return any(
            later > number and later not in known for storage in storages for later in flow.writers[storage]
        )
    if flow.has(number, CONVERT):
        return False
    geometry = operation.writes[1]
    users = [
        later
        for value in operation.writes[::3]
        for later, shown in flow.readers[value]
        if shown == geometry and number < later < flow.end
    ]
    return not users or any(later not in known for later in users)
