"""The same operations on the same values more than once in a step, and backward passes through the same nodes.

By value numbering over the function, its other arguments, and its inputs with their geometry. Not reported: activation
checkpointing, which computes again on purpose, values that are written to later, and the second of two unchanging
operations.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

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
    Frame,
)

FACTORIES = frozenset(
    ("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
    + ("scalar_tensor", "arange")
)
"""Functions whose equal results are separate on purpose; what is computed from equal ones may be repeated."""

UNKNOWN = frozenset(
    ("lift_fresh", "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided")
    + ("_record_function_enter_new", "_record_function_exit")
)
"""Functions whose result does not follow from their recorded arguments."""

CASTS = frozenset(("_to_copy", "t", "transpose", "view", "clone", "permute", "detach", "unsqueeze", "expand"))

MOST_OF_A_PASS = 0.5
"""Part of a backward pass that must repeat an earlier one."""

Key = tuple[object, ...]


def find_repeated(flow: Dataflow, dead: Collection[int], unchanging: Collection[int]) -> list[Waste]:
    """Return the repeated operations, by the two lines that compute the same."""
    parted: dict[tuple[Line, Line], list[int]] = defaultdict(list)
    alike: dict[tuple[str, str], list[int]] = defaultdict(list)
    detached: dict[tuple[str, str], list[int]] = defaultdict(list)
    firsts = _pairs(flow)
    # In a loop over layers, for example, the lines are those that do nothing but repeated work.
    roots = flow.roots({*firsts, *firsts.values()})
    for number, before in firsts.items():
        if (
            not flow.operations[number].reads
            or flow.name(number) in FACTORIES
            or number in dead
            or number in unchanging
            or flow.operations[number].backward != flow.operations[before].backward
        ):
            continue
        line = flow.line(number)
        if flow.name(number) == "detach":
            detached[line.file, line.function].append(number)
        elif parts := _part(flow, before, number):
            parted[parts].append(number)
        else:
            alike[roots[number].file, roots[number].function].append(number)
    groups: list[tuple[tuple[Line, ...], Line | None, list[int]]]
    groups = [((second,), first, numbers) for (first, second), numbers in parted.items()]
    groups += [(flow.lines_of(roots, numbers), None, numbers) for numbers in alike.values()]
    found = []
    for lines, other, numbers in groups:
        # Its backward remains if the first one has none, as in an evaluation.
        twice = [number for number in numbers if flow.backward_of.get(firsts[number])]
        whole = list(dict.fromkeys((*numbers, *flow.with_backward(twice))))
        callers = tuple(line for line in flow.callers(numbers) if line not in lines)
        found.append(Waste(tuple(whole), flow.share(whole), lines, callers, other=other, count=len(numbers)))
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
    return [*found, *_derivatives_again(flow, firsts)]


def _derivatives_again(flow: Dataflow, pairs: Mapping[int, int]) -> list[Waste]:
    """Return the passes of torch.autograd.grad that mostly repeat an earlier one, for other inputs.

    Single operations that two backward passes share are parts of torch's formulas: a program cannot keep their results.
    """
    passes: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, before in pairs.items():
        operation, earlier = flow.operations[number], flow.operations[before]
        if (
            operation.flags & BACKWARD
            and not operation.flags & NO_GRAD
            and operation.backward != earlier.backward
        ):
            passes[earlier.backward, operation.backward].append(number)
    sizes = Counter(
        operation.backward
        for number in flow.step
        if (operation := flow.operations[number]).flags & BACKWARD
        and operation.writes
        and not flow.is_view(number)
    )
    found = []
    for (_, later), numbers in passes.items():
        if len(numbers) < MOST_OF_A_PASS * sizes[later]:
            continue
        stacks = [flow.caller_of_backward(each) for each in (pairs[numbers[0]], numbers[0])]
        innermost = next((line_of(frame) for frame in stacks[1] if not frame.is_installed), None)
        parts = _parted(*stacks)
        if parts is None and innermost is not None:
            parts = innermost, innermost
        if parts is None:
            continue
        first, second = parts
        whole = list(
            dict.fromkeys(
                each for number in numbers for each in (number, *_shared(flow, pairs[number], number))
            )
        )
        found.append(
            Waste(
                tuple(whole), flow.share(whole), (second,), other=first, count=len(numbers), in_backward=True
            )
        )
    return found


def _shared(flow: Dataflow, before: int, number: int) -> list[int]:
    """Return the backward of an operation in passes that also go through the earlier one: one of the two is enough."""
    passes = {flow.operations[each].backward for each in flow.backward_of.get(before, ())}
    return [each for each in flow.backward_of.get(number, ()) if flow.operations[each].backward in passes]


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


def _pairs(flow: Dataflow) -> dict[int, int]:
    """Return the earlier operation that computed the same, for each of the step that has one."""
    keys = _numbered(flow)
    first: dict[Key, int] = {}
    found: dict[int, int] = {}
    for number in flow.step:
        operation, key = flow.operations[number], keys[number]
        if key is None or not operation.writes:
            continue
        if operation.flags & (OPTIMIZER | DATA | HOST | READ | CHECKPOINTED):
            continue
        if flow.is_view(number) and flow.name(number) != "detach":
            continue
        before = first.setdefault(key, number)
        # Activation checkpointing computes again on purpose.
        flags = flow.operations[before].flags
        if (flags ^ operation.flags) & BACKWARD or (flags | operation.flags) & RECOMPUTE:
            continue
        if before != number:
            found[number] = before
    _drop_own_copies(flow, found)
    return found


def _drop_own_copies(flow: Dataflow, pairs: dict[int, int]) -> None:
    """Drop the pairs of which one is a copy of its own: memory that not only repeated operations fill."""
    while pairs:
        firsts = set(pairs.values())
        own = [
            number
            for number, before in pairs.items()
            if not (_is_filled_by(flow, number, pairs) and _is_filled_by(flow, before, firsts))
        ]
        for number in own:
            del pairs[number]
        if not own:
            return


def _is_filled_by(flow: Dataflow, number: int, known: Collection[int]) -> bool:
    """Return whether only these operations write to the memory of an operation's results."""
    window, operation = flow.window, flow.operations[number]
    storages = {window.value_storage[value] for value in flow.made(number)}
    if any(later > number and later not in known for storage in storages for later in flow.writers[storage]):
        return False
    if WRITTEN not in operation.writes[2::3]:
        return True
    return all(
        window.value_operation[value] in known
        for value in operation.reads[::2]
        if window.value_storage[value] in storages
    )


def _numbered(flow: Dataflow) -> list[Key | None]:
    """Return a key of each operation, equal for the same function of the same values; None if there is none."""
    window = flow.window
    numbers: dict[int, Key] = {}
    keys: list[Key | None] = []
    for number, operation in enumerate(flow.operations[: flow.end]):
        key: Key | None = None
        function = window.functions[operation.function]
        if not operation.flags & RANDOM and function.name not in UNKNOWN and not function.is_empty:
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


def _part(flow: Dataflow, before: int, number: int) -> tuple[Line, Line] | None:
    """Return the lines of two operations where their stacks part, from outside; None if they do not."""
    return _parted(flow.stack(before), flow.stack(number))


def _parted(before: Sequence[Frame], now: Sequence[Frame]) -> tuple[Line, Line] | None:
    """Return the lines where two stacks part, from outside; None if they do not."""
    for first, second in zip(before[::-1], now[::-1], strict=False):
        if first != second:
            return line_of(first), line_of(second)
    return None


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
