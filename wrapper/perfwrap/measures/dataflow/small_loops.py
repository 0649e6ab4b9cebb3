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
NESTED = 4
"""Most calls of one function that may follow from each other in one turn at one line, as in ``a[b[c[i]]]``."""
MIN_RECURRENT = 0.1
"""From this part of the time of the free calls on, those that follow from the turn before make it a recurrence."""
SAVED = 0.9
"""Part of the time without one turn that one operation on all of it saves."""

OVERWRITING = frozenset(("fill_", "zero_", "copy_"))
"""Operations that replace what a tensor held. They do not follow from those that wrote another part of its memory."""

RECURRENT = frozenset(("RNN", "GRU", "LSTM"))
"""Modules of PyTorch whose single call makes many small operations; in C++, not in a loop of the program."""

Called = tuple[Line, int]
Function = tuple[str, str]
Calls = list[tuple[Line, list[int]]]


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
    by_function: dict[Function, list[Called]] = defaultdict(list)
    shared: Counter[Function] = Counter()
    recurrent: dict[Function, list[Called]] = defaultdict(list)
    for each, numbers in many.items():
        # Of a recurrence, what does not follow from the turn before can be computed for all turns at once.
        function = each[0].file, each[0].function
        if _free_part(flow, numbers, chained) < MIN_FREE:
            recurrent[function].append(each)
            continue
        by_function[function].append(each)
        shared[function] += _reads_parts(flow, numbers)
    loops = []
    for function, calls in by_function.items():
        if shared[function]:
            others = [each for other, each in by_function.items() if not shared[other]]
            inner = _called_in(flow, many, calls + recurrent[function], others)
            own, called, after = (
                [(each[0], many[each]) for each in group] for group in (calls, inner, recurrent[function])
            )
            loops.append(_loop(flow, own, called, after, unchanging))
    return [loop for loop in loops if loop is not None]


def _called_in(
    flow: Dataflow, many: dict[Called, list[int]], loop: list[Called], others: list[list[Called]]
) -> list[Called]:
    """Return the calls of other functions that the lines of a loop call in each turn."""
    line = loop[0][0]
    first, last = min(each.line for each, _ in loop), max(each.line for each, _ in loop)
    turns = min(len(many[called]) for called in loop)
    return [
        called
        for calls in others
        for called in calls
        if len(many[called]) >= turns
        and all(
            any(
                (frame.file, frame.function) == (line.file, line.function) and first <= frame.line <= last
                for frame in flow.stack(number)[1:]
            )
            for number in many[called]
        )
    ]


def _chained(flow: Dataflow, many: dict[Called, list[int]]) -> set[int]:
    """Return the operations that follow from a call of the same function at their line in an earlier turn.

    A line with several calls in a turn may nest them, up to NESTED. ``follows`` has NESTED bits of each called: as
    many of them are set as calls are in the longest chain to a value.
    """
    place_of = {called: NESTED * at for at, called in enumerate(many)}
    full = (1 << NESTED) - 1
    turns: dict[Function, int] = {}
    for (line, _), numbers in many.items():
        function = line.file, line.function
        turns[function] = min(len(numbers), turns.get(function, len(numbers)))
    in_turn = {
        called: min(NESTED, len(numbers) // turns[called[0].file, called[0].function])
        for called, numbers in many.items()
    }
    own = {number: called for called, numbers in many.items() for number in numbers}
    follows: dict[int, int] = {}
    found: set[int] = set()
    for number in flow.step:
        operation = flow.operations[number]
        replaced = _replaced(flow, number)
        bits = needed = 0
        for value, geometry in operation.inputs():
            read = follows.get(value, 0)
            bits |= read
            if (flow.window.value_storage[value], geometry) not in replaced:
                needed |= read
        called = own.get(number)
        if called is not None:
            before = needed >> place_of[called] & full
            if before >> in_turn[called] - 1:
                found.add(number)
            if not flow.is_view(number):
                bits |= (before << 1 & full | 1) << place_of[called]
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
    flow: Dataflow, own: Calls, inner: Calls, recurrent: Calls, unchanging: Collection[int]
) -> Waste | None:
    """Return the loop of one function, None if its operations are not small.

    ``own`` are its calls, ``inner`` those of the functions that it calls in each turn, ``recurrent`` those that follow
    from the turn before.
    """
    every: list[int] = []
    names: Counter[str] = Counter()
    lines: Counter[Line] = Counter()
    for line, numbers in (*own, *inner):
        whole = flow.with_backward(numbers)
        every += whole
        names[flow.name(numbers[0])] += len(numbers)
        lines[line] += sum(flow.cost(number) for number in whole)  # type: ignore[assignment]
    places = {line for line, _ in own}
    ordered = sorted(lines, key=lambda line: (line not in places, -lines[line]))
    turns = Counter(len(numbers) for _, numbers in own)
    total = sum(flow.cost(number) for number in every)
    is_large = total / len(every) > MAX_MEAN_NS
    if is_large or all(n in unchanging or flow.is_view(n) for n in every):
        return None
    count = turns.most_common(1)[0][0]
    after = sum(flow.cost(number) for _, numbers in recurrent for number in flow.with_backward(numbers))
    return Waste(
        tuple(every),
        SAVED * total * (1 - 1 / count) / flow.step_ns,
        tuple(ordered[:4]),
        tuple(flow.callers(every)),
        names=tuple(names.most_common(4)),
        count=count,
        in_recurrence=after >= MIN_RECURRENT * total,
    )
