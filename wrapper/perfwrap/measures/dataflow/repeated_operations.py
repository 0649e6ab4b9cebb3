"""The same operations on the same values more than once in a step, and backward passes through the same nodes.

By value numbering over the function, its other arguments, and its inputs with their geometry. Not reported: activation
checkpointing, which computes again on purpose, values that are written to later, and the second of two unchanging
operations.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection

from perfwrap.measures.account.lines import Line
from perfwrap.measures.dataflow.dataflow import Dataflow, line_of
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.timeline.operation_window import (
    BACKWARD,
    CHECKPOINTED,
    DATA,
    HOST,
    NO_GRAD,
    OPTIMIZER,
    RANDOM,
    READ,
    RECOMPUTE,
    VIEW,
    WRITTEN,
)

FACTORIES = frozenset(
    (
        *(
            "zeros",
            "ones",
            "full",
            "zeros_like",
            "ones_like",
            "full_like",
            "new_zeros",
            "new_ones",
            "new_full",
        ),
        *("scalar_tensor", "lift_fresh", "empty", "empty_like", "new_empty", "empty_strided", "arange"),
        *("new_empty_strided", "_record_function_enter_new", "_record_function_exit"),
    )
)
"""Functions whose equal results are separate on purpose."""

CASTS = frozenset(("_to_copy", "t", "transpose", "view", "clone", "permute", "detach", "unsqueeze", "expand"))

Key = tuple[object, ...]


def find_repeated(flow: Dataflow, dead: Collection[int], unchanging: Collection[int]) -> list[Waste]:
    """Return the repeated operations, by the two lines that compute the same."""
    groups: dict[tuple[Line, Line], list[int]] = defaultdict(list)
    detached: dict[tuple[str, str], list[int]] = defaultdict(list)
    firsts: dict[int, int] = {}
    for number, before in _pairs(flow):
        firsts[number] = before
        if number in dead or (number in unchanging and before not in unchanging):
            continue
        if flow.name(number) == "detach":
            line = flow.line(number)
            detached[line.file, line.function].append(number)
        else:
            groups[_part(flow, before, number)].append(number)
    found = []
    for (first, second), numbers in groups.items():
        if all(number in unchanging for number in numbers):
            continue
        # Its backward remains if the first one has none, as in an evaluation.
        twice = [number for number in numbers if flow.backward_of.get(firsts[number])]
        whole = list(dict.fromkeys((*numbers, *flow.with_backward(twice))))
        found.append(
            Waste(
                tuple(whole),
                flow.share(whole),
                (second,),
                tuple(flow.callers(numbers)),
                other=first if first != second else None,
                count=len(numbers),
            )
        )
    for numbers in detached.values():
        found.append(
            Waste(
                tuple(numbers),
                flow.share(numbers),
                tuple(flow.lines(numbers)),
                tuple(flow.callers(numbers)),
                names=(("detach", len(numbers)),),
                count=len(numbers),
            )
        )
    return found


def find_repeated_backward(flow: Dataflow, dead: Collection[int]) -> list[Waste]:
    """Return backward passes through nodes that another one has visited, if nothing reads the gradients in between.

    Passes whose gradients nothing uses, ``dead``, are a waste of their own.
    """
    alone = _of_parameters_alone(flow)
    passes: dict[int, dict[int, list[int]]] = defaultdict(dict)
    creating = set()
    for number in flow.step:
        operation = flow.operations[number]
        if not operation.flags & BACKWARD or number in dead:
            continue
        if not operation.flags & (NO_GRAD | RECOMPUTE):
            creating.add(operation.backward)  # create_graph=True
        if operation.node >= 0 and operation.flags & NO_GRAD and flow.forward_of(number) not in alone:
            passes[operation.node].setdefault(operation.backward, []).append(number)
    again: list[int] = []
    pairs = set()
    for by_pass in passes.values():
        if by_pass.keys() & creating:
            continue
        first, *later = sorted(by_pass)
        for each in later:
            again += by_pass[each]
            pairs.add((first, each))
    if not again or any(_is_read_between(flow, first, later) for first, later in pairs):
        return []
    calls = Counter(
        line_of(flow.caller_of_backward(number)[0]) for number in again if flow.caller_of_backward(number)
    )
    lines = tuple(line for line, _ in calls.most_common())
    return [Waste(tuple(again), flow.share(again), lines, count=len(pairs) + 1, in_backward=True)]


def _pairs(flow: Dataflow) -> list[tuple[int, int]]:
    """Return (operation, the earlier one that computed the same) of the step."""
    keys = _numbered(flow)
    first: dict[Key, int] = {}
    found = []
    for number in flow.step:
        operation, key = flow.operations[number], keys[number]
        if key is None or not operation.reads or not operation.writes:
            continue
        if operation.flags & (OPTIMIZER | DATA | HOST | READ | CHECKPOINTED):
            continue
        if flow.is_view(number) and flow.name(number) != "detach":
            continue
        storages = {flow.window.value_storage[value] for value in flow.made(number)}
        if any(later > number for storage in storages for later in flow.writers[storage]):
            continue  # a copy of its own
        before = first.setdefault(key, number)
        if before == number or any(how == WRITTEN for how in operation.writes[2::3]):
            continue
        # Activation checkpointing computes again on purpose.
        if (flow.operations[before].flags ^ operation.flags) & BACKWARD or operation.flags & RECOMPUTE:
            continue
        found.append((number, before))
    return found


def _numbered(flow: Dataflow) -> list[Key | None]:
    """Return a key of each operation, equal for the same function of the same values; None if there is none."""
    window = flow.window
    numbers: dict[int, Key] = {}
    keys: list[Key | None] = []
    for number, operation in enumerate(flow.operations[: flow.end]):
        key: Key | None = None
        function = window.functions[operation.function]
        if not operation.flags & RANDOM and function.name not in FACTORIES and not function.is_empty:
            inputs = tuple(
                (numbers.get(value, ("value", value)), shape) for value, shape in operation.inputs()
            )
            key = operation.function, operation.scalars, hash(inputs)
        keys.append(key)
        for place, (value, geometry, how) in enumerate(operation.outputs()):
            if how != VIEW:
                is_known = key is not None and number >= flow.first
                numbers[value] = (
                    ("made", hash((key, place, geometry)), place) if is_known else ("own", number, place)
                )
    return keys


def _part(flow: Dataflow, before: int, number: int) -> tuple[Line, Line]:
    """Return the lines of two operations where their stacks part, from outside."""
    one, two = flow.stack(before)[::-1], flow.stack(number)[::-1]
    for first, second in zip(one, two, strict=False):
        if first != second:
            return line_of(first), line_of(second)
    shared = line_of((one or two or [None])[-1])  # type: ignore[list-item]
    return shared, line_of((two or one or [None])[-1])  # type: ignore[list-item]


def _of_parameters_alone(flow: Dataflow) -> set[int]:
    """Return operations that only cast parameters, which the passes of an accumulation rightly share."""
    window, found = flow.window, set[int]()
    for number in flow.step:
        operation = flow.operations[number]
        if flow.name(number) not in CASTS or operation.flags & BACKWARD or not operation.reads:
            continue
        if all(
            window.value_operation[value] in found
            or (
                window.value_operation[value] < flow.first
                and window.storages[window.value_storage[value]].first_step < 1
            )
            for value in operation.reads[::2]
        ):
            found.add(number)
    return found


def _is_read_between(flow: Dataflow, first: int, later: int) -> bool:
    """Return whether anything but a backward pass reads, between two passes, what the first one made."""
    mine = [number for number in flow.step if flow.operations[number].backward == first]
    start = min(number for number in flow.step if flow.operations[number].backward == later)
    made = {
        value
        for number in mine
        for value, _, how in flow.operations[number].outputs()
        if how != VIEW and number <= mine[-1]
    }
    return any(
        not flow.has(number, BACKWARD) and not made.isdisjoint(flow.operations[number].reads[::2])
        for number in range(mine[-1] + 1, start)
    )
