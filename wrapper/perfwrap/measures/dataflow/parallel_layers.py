"""Modules that are called one after the other on the same tensor: the heads of an attention layer, experts, ensembles.

Calls at one line of the program that do not follow from each other, with equal shapes, could be one call on stacked
tensors, if they begin with one tensor that all of them read. Calls of the next layer follow from those of the layer
before, so they are another group.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator

from perfwrap.measures.dataflow.dataflow import Dataflow
from perfwrap.measures.dataflow.small_loops import MAX_MEAN_NS, SAVED, Called
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.timeline.operation_window import BACKWARD, DATA, HOST, NO_GRAD, OPTIMIZER, RANDOM, VIEW, WRITTEN

MIN_TOGETHER = 4
"""Calls that could be one: fewer gain little."""
MIN_CALLS = 12
"""Calls of one function at one line in a step: with fewer, little is gained."""


def find_parallel_layers(flow: Dataflow) -> list[Waste]:
    """Return the modules by function of the program."""
    calls: dict[Called, list[int]] = defaultdict(list)
    for number in flow.step:
        operation = flow.operations[number]
        if not operation.flags & (BACKWARD | OPTIMIZER | DATA | HOST | NO_GRAD) and operation.inside >= 0:
            calls[flow.line(number), operation.function].append(number)
    many = {called: numbers for called, numbers in calls.items() if len(numbers) >= MIN_CALLS}
    if not many:
        return []
    depths, weights = _depths(flow, many), _weights(flow)
    by_function: dict[tuple[str, str], list[list[int]]] = defaultdict(list)
    for (line, _), numbers in many.items():
        by_function[line.file, line.function] += _groups(flow, numbers, depths)
    found = (
        _waste(flow, groups)
        for groups in by_function.values()
        if any(_have_one_input(flow, group, weights) for group in groups)
    )
    return [waste for waste in found if waste is not None]


def _depths(flow: Dataflow, many: dict[Called, list[int]]) -> dict[int, int]:
    """Return for each of these calls how many calls of the same function at its line it follows from, in a chain."""
    own = {number: called for called, numbers in many.items() for number in numbers}
    follows: dict[int, dict[Called, int]] = {}
    found: dict[int, int] = {}
    for number in flow.step:
        operation = flow.operations[number]
        known: dict[Called, int] = {}
        for value in operation.reads[::2]:
            for called, depth in follows.get(value, {}).items():
                known[called] = max(depth, known.get(called, 0))
        called_here = own.get(number)
        if called_here is not None:
            found[number] = known.get(called_here, 0)
            known[called_here] = found[number] + 1
        for value, _, how in operation.outputs():
            if how != VIEW:
                follows[value] = known
    return found


def _groups(flow: Dataflow, numbers: list[int], depths: dict[int, int]) -> Iterator[list[int]]:
    """Yield calls that could be one: with equal shapes, and none follows from another."""
    alike: dict[object, list[int]] = defaultdict(list)
    for number in numbers:
        operation = flow.operations[number]
        # Views remain, on larger tensors.
        if operation.writes and all(how not in (VIEW, WRITTEN) for how in operation.writes[2::3]):
            shapes = tuple(
                tuple(flow.window.geometries[geometry].shape)
                for geometry in (*operation.reads[1::2], *operation.writes[1::3])
            )
            alike[depths[number], shapes, operation.scalars].append(number)
    return (group for group in alike.values() if len(group) >= MIN_TOGETHER)


def _have_one_input(flow: Dataflow, group: list[int], weights: Collection[int]) -> bool:
    """Return whether all calls read one tensor of this step, and each of them weights of its own."""
    inputs = [dict(enumerate(flow.operations[number].reads[::2])) for number in group]
    one = own = False
    for place in inputs[0]:
        values = [each.get(place, -1) for each in inputs]
        different = set(values)
        one = one or (len(different) == 1 and values[0] not in weights)
        own = own or (len(different) == len(group) and all(value in weights for value in values))
    return one and own and any(flow.backward_of.get(number) for number in group)


def _weights(flow: Dataflow) -> set[int]:
    """Return the values that are older than the step, such as parameters, or made of nothing else."""
    storages = flow.window.storages
    found = {
        value
        for value, storage in enumerate(flow.window.value_storage)
        if storages[storage].first_step < 1 and flow.window.value_operation[value] < flow.first
    }
    for number in flow.step:
        operation = flow.operations[number]
        if not operation.flags & RANDOM and all(value in found for value in operation.reads[::2]):
            found.update(flow.made(number))
    return found


def _waste(flow: Dataflow, groups: list[list[int]]) -> Waste | None:
    """Return the calls of one function's groups; None if they are not small."""
    every = flow.with_backward(number for group in groups for number in group)
    total = sum(flow.cost(number) for number in every)
    if total / len(every) > MAX_MEAN_NS:
        return None
    calls = [number for group in groups for number in group]
    names = Counter(flow.name(number) for number in calls)
    together = Counter(len(group) for group in groups).most_common(1)[0][0]
    return Waste(
        tuple(every),
        SAVED * total * (1 - len(groups) / len(calls)) / flow.step_ns,
        tuple(flow.lines(calls)),
        tuple(flow.callers(calls)),
        names=tuple(names.most_common(4)),
        count=together,
        is_parallel=True,
    )
