"""Which operations of the judged step reach anything: a parameter, a value that the host reads, state that remains.

From the end of the window backwards: local variables keep dead results alive beyond their step, so the following step
must have begun. Nothing is said if an optimizer reads gradients that no recorded operation made: those of other
threads, compiled regions, or extensions in C++.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap.measures.dataflow.dataflow import Dataflow
from perfwrap.timeline.operation_window import ACCUMULATE, HOST, OPTIMIZER, READ, VIEW, WRITTEN

PURE = ("aten", "prims")
"""Namespaces of operations without other effects than those in their schemas."""


class Liveness(Struct, frozen=True):
    """What reaches nothing."""

    operations: frozenset[int]
    """Operations of the step, all of whose results reach nothing."""
    values: frozenset[int]
    """Values that operations of the step made, and that reach nothing."""


NOTHING_DEAD = Liveness(frozenset(), frozenset())


def find_dead(flow: Dataflow, but_python: bool = False) -> Liveness | None:
    """Return what reaches nothing, or, with ``but_python``, what reaches nothing but values that Python reads.

    What an optimizer reads, such as a line search, is no such value. None if that cannot be known.
    """
    if _has_unseen_gradients(flow):
        return None
    window = flow.window
    unowned = set(window.unowned)
    remaining = {value for storage, value in window.alive if storage not in unowned}
    kept = {storage for storage, _ in window.alive} - unowned
    gradients = _gradients(flow)
    live_values: set[int] = set()
    live: set[int] = set()
    for number in range(len(flow.operations) - 1, -1, -1):
        operation = flow.operations[number]
        is_read = (
            bool(operation.flags & (HOST | READ)) or flow.window.functions[operation.function].is_dynamic
        )
        if but_python and is_read and not operation.flags & OPTIMIZER:
            is_live = False
        else:
            is_live = (
                is_read or _has_effects(flow, number) or (not operation.writes and bool(operation.reads))
            )
        if not is_live:
            for value, _, how in operation.outputs():
                if how != VIEW and (value in live_values or value in remaining):
                    is_live = True
                elif how == WRITTEN and window.value_storage[value] in kept - gradients:
                    # State that outlives its step may be read later (averages, evaluation); gradients may not.
                    is_live = is_live or _outlives(flow, number, window.value_storage[value])
        is_view = flow.is_view(number)
        if is_live:
            live.add(number)
            if not is_view or is_read:
                live_values.update(operation.reads[::2])
    dead = frozenset(
        number
        for number in flow.step
        if number not in live
        and not flow.is_view(number)
        and flow.operations[number].writes
        and not window.functions[flow.operations[number].function].is_empty
    )
    made = {value for number in flow.step for value in flow.made(number)}
    return Liveness(dead, frozenset(made - live_values - remaining))


def _has_effects(flow: Dataflow, number: int) -> bool:
    """Return whether an operation does more than to compute its outputs."""
    operation = flow.operations[number]
    return bool(flow.window.functions[operation.function].namespace not in PURE and operation.reads)


def _outlives(flow: Dataflow, number: int, storage: int) -> bool:
    """Return whether memory that an operation writes is older than the step of that operation."""
    firsts = flow.window.first_operations
    begun = flow.window.storages[storage].first_step
    return begun == 0 or number >= firsts[begun + 1]


def _gradients(flow: Dataflow) -> set[int]:
    """Return the storages in which gradients of leaves are accumulated."""
    found: set[int] = set()
    for operation in flow.operations:
        if operation.flags & ACCUMULATE:
            values = (*operation.reads[::2], *operation.writes[::3])
            found.update(flow.window.value_storage[value] for value in values)
    return found


def _has_unseen_gradients(flow: Dataflow) -> bool:
    """Return whether optimizers read what no recorded operation made in this step or the next."""
    window = flow.window
    for step in (1, 2):
        for number in range(window.first_operations[step], window.first_operations[step + 1]):
            operation = flow.operations[number]
            if operation.flags & OPTIMIZER:
                for value, geometry in operation.inputs():
                    is_new = window.storages[window.value_storage[value]].first_step == step
                    is_unmade = window.value_operation[value] == -1
                    if is_new and is_unmade and window.geometries[geometry].elements > 1:
                        return True
    return False
