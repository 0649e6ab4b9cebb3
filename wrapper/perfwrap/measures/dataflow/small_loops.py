"""Loops of Python that call many small operations on parts of the same tensor, none of which needs the one before."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection

from perfwrap.measures.account.lines import Line
from perfwrap.measures.dataflow.dataflow import Dataflow
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.timeline.operation_window import BACKWARD, DATA, HOST, OPTIMIZER, VIEW, WRITTEN

MIN_TURNS = 32
MAX_MEAN_NS = 120_000
"""Longer operations gain little from being one."""
MIN_DIFFERENT = 0.75
"""Part of the turns, up to MIN_TURNS, that must read different parts of one tensor."""
MIN_FREE = 0.6
"""Part of the time of a line's calls that does not follow from an earlier call at that line, as in a recurrence."""
SAVED = 0.9
"""Part of the time without one turn that one operation on all of it saves."""

OVERWRITING = frozenset(("fill_", "zero_", "copy_"))
"""Operations that replace what a tensor held. They do not follow from those that wrote another part of its memory."""

RECURRENT = frozenset(("RNN", "GRU", "LSTM"))
"""Modules of PyTorch whose single call makes many small operations; in C++, not in a loop of the program."""

Called = tuple[Line, int]


def find_small_loops(flow: Dataflow, unchanging: Collection[int]) -> list[Waste]:
    """Return the loops by function of the program."""
    members: dict[Called, list[int]] = defaultdict(list)
    for number in flow.step:
        operation = flow.operations[number]
        is_own = operation.module < 0 or flow.window.modules[operation.module].kind not in RECURRENT
        if is_own and not operation.flags & (BACKWARD | OPTIMIZER | DATA | HOST) and operation.inside >= 0:
            members[flow.line(number), operation.function].append(number)
    many = {called: numbers for called, numbers in members.items() if len(numbers) >= MIN_TURNS}
    if not many:
        return []
    chained = _chained(flow, many)
    by_function: dict[tuple[str, str], list[Called]] = defaultdict(list)
    shared: Counter[tuple[str, str]] = Counter()
    recurrent = set()
    for called, numbers in many.items():
        # Of a recurrence, what does not follow from the turn before can be computed for all turns at once.
        function = called[0].file, called[0].function
        if _free_part(flow, numbers, chained) < MIN_FREE:
            recurrent.add(function)
            continue
        by_function[function].append(called)
        shared[function] += _reads_parts(flow, numbers)
    loops = [
        _loop(flow, {called: many[called] for called in calls}, unchanging, function in recurrent)
        for function, calls in by_function.items()
        if shared[function]
    ]
    return [loop for loop in loops if loop is not None]


def _chained(flow: Dataflow, many: dict[Called, list[int]]) -> set[int]:
    """Return the operations that follow from an earlier call of the same function at their line."""
    bit_of = {called: 1 << at for at, called in enumerate(many)}
    own = {number: called for called, numbers in many.items() for number in numbers}
    follows: dict[int, int] = {}
    found: set[int] = set()
    for number in flow.step:
        operation = flow.operations[number]
        replaced = _replaced(flow, number)
        bits = needed = 0
        for value, geometry in operation.inputs():
            before = follows.get(value, 0)
            bits |= before
            if (flow.window.value_storage[value], geometry) not in replaced:
                needed |= before
        called = own.get(number)
        if called is not None:
            if needed & bit_of[called]:
                found.add(number)
            if not flow.is_view(number):
                bits |= bit_of[called]
        for value, _, how in operation.outputs():
            if how != VIEW:
                follows[value] = bits
    return found


def _replaced(flow: Dataflow, number: int) -> set[tuple[int, int]]:
    """Return the storage and geometry of which this operation replaces what was there, without reading it."""
    if flow.name(number) not in OVERWRITING:
        return set()
    outputs = flow.operations[number].outputs()
    return {
        (flow.window.value_storage[value], geometry) for value, geometry, how in outputs if how == WRITTEN
    }


def _reads_parts(flow: Dataflow, numbers: list[int]) -> int:
    """Return how many different parts of one tensor these calls read; 0 if too few."""
    ways: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for number in numbers:
        operation = flow.operations[number]
        for value, geometry in operation.inputs():
            ways[flow.window.value_storage[value]].add((geometry, operation.scalars))
    needed = MIN_DIFFERENT * min(len(numbers), MIN_TURNS)
    return max((len(each) for each in ways.values() if len(each) >= needed), default=0)


def _free_part(flow: Dataflow, numbers: list[int], chained: Collection[int]) -> float:
    """Return the part of the time of some calls, with their backward, that follows from none of them before."""
    free = sum(flow.cost(each) for each in flow.with_backward(n for n in numbers if n not in chained))
    return free / max(1.0, sum(flow.cost(each) for each in flow.with_backward(numbers)))


def _loop(
    flow: Dataflow, calls: dict[Called, list[int]], unchanging: Collection[int], in_recurrence: bool
) -> Waste | None:
    """Return the loop of one function, None if its operations are not small."""
    every: list[int] = []
    names: Counter[str] = Counter()
    lines: Counter[Line] = Counter()
    turns: Counter[int] = Counter()
    for (line, _), numbers in calls.items():
        whole = flow.with_backward(numbers)
        cost = sum(flow.cost(number) for number in whole)
        every += whole
        names[flow.name(numbers[0])] += len(numbers)
        lines[line] += cost  # type: ignore[assignment]
        turns[len(numbers)] += 1
    total = sum(flow.cost(number) for number in every)
    is_large = total / len(every) > MAX_MEAN_NS
    if is_large or all(n in unchanging or flow.is_view(n) for n in every):
        return None
    count = turns.most_common(1)[0][0]
    return Waste(
        tuple(every),
        SAVED * total * (1 - 1 / count) / flow.step_ns,
        tuple(line for line, _ in lines.most_common(4)),
        tuple(flow.callers(every)),
        names=tuple(names.most_common(4)),
        count=count,
        in_recurrence=in_recurrence,
    )
