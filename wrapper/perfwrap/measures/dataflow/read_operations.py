"""Operations of every step whose results only Python reads: metrics and log values.

Their results reach a value that the host reads, but no parameter and no state that outlives the step. Nothing is said
if what Python has read may come back into the training: as tensors made from Python or NumPy values, as numbers that
differ from step to step, or as a decision what to do, so that steps call other operations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from perfwrap.measures.dataflow.dataflow import Dataflow
from perfwrap.measures.dataflow.live_operations import Liveness, find_dead
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.timeline.operation_window import BACKWARD, CONVERT, DATA, HOST, OPTIMIZER, READ

FROM_PYTHON = frozenset(("lift_fresh", "scalar_tensor"))
"""Functions that make a tensor from Python values."""
WITH_NUMBERS = frozenset(
    ("mul", "mul_", "div", "div_", "add", "add_", "sub", "sub_", "pow", "lerp", "lerp_", "clamp", "clamp_")
)
"""Functions whose numbers take part in the computation; those of others are mostly sizes."""


def find_read(flow: Dataflow, dead: Liveness, other: Collection[int], has_loader: bool) -> list[Waste]:
    """Return the operations for values that only Python reads, by the function to change, without the ``other`` ones.

    ``has_loader`` is whether a DataLoader makes the batches: otherwise new tensors may be made from what was read.
    """
    beside = find_dead(flow, but_python=True)
    if beside is None:
        return []
    whole = {
        number
        for number in beside.operations
        if not flow.has(number, BACKWARD | OPTIMIZER | DATA | HOST | READ)
    }
    numbers = whole - dead.operations - set(other)
    if not numbers or _comes_back(flow, beside.operations, has_loader):
        return []
    numbers &= _in_every_step(flow)
    roots = flow.roots(whole)
    groups = defaultdict(list)
    for number in sorted(numbers):
        groups[roots[number].file, roots[number].function].append(number)
    return [
        Waste(tuple(each), flow.share(each), flow.lines_of(roots, each), tuple(flow.callers(each)))
        for each in groups.values()
    ]


def _comes_back(flow: Dataflow, only_read: Collection[int], has_loader: bool) -> bool:
    """Return whether the training of the judged step may use values that Python has read before."""
    window = flow.window
    for number in flow.step:
        operation = flow.operations[number]
        if number in only_read or operation.flags & (DATA | OPTIMIZER | BACKWARD | HOST | READ):
            continue
        if operation.flags & CONVERT or flow.name(number) in FROM_PYTHON:
            return True
        if not has_loader and any(
            window.value_operation[value] == -1 and window.storages[window.value_storage[value]].first_step
            for value in operation.reads[::2]
        ):
            return True
    return _numbers(flow, 1) != _numbers(flow, 2) or _called(flow, 1) != _called(flow, 2)


def _numbers(flow: Dataflow, step: int) -> set[tuple[object, ...]]:
    """Return the operations of a step with numbers of Python in them."""
    begin, end = flow.window.first_operations[step : step + 2]
    return {
        (flow.signature(number), flow.operations[number].scalars)
        for number in range(begin, end)
        if flow.name(number) in WITH_NUMBERS and not flow.has(number, OPTIMIZER | BACKWARD | DATA)
    }


def _called(flow: Dataflow, step: int) -> list[str]:
    """Return the functions that a step calls, in order, without reads."""
    begin, end = flow.window.first_operations[step : step + 2]
    return [flow.name(number) for number in range(begin, end) if not flow.has(number, HOST | READ | DATA)]


def _in_every_step(flow: Dataflow) -> set[int]:
    """Return the operations of the judged step that all steps of all windows have."""
    found = {flow.signature(number): number for number in flow.step}
    for other in (flow, *(Dataflow(window) for window in flow.others)):
        firsts = other.window.first_operations
        for step in range(len(firsts) - 1):
            here = {other.signature(number) for number in range(firsts[step], firsts[step + 1])}
            found = {signature: number for signature, number in found.items() if signature in here}
    return set(found.values())
