"""The middle step of a dataflow window as a graph: who made and read each value, which line called, what it costs.

The costs are those of a bare step. Each operation is in up to six watched steps (three per window): its time is the
shortest of these, because other programs only add. The recorder makes the gap between two operations longer by a
constant, which is chosen so that the whole step takes as long as the steps before the window.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from perfwrap.measures.account.lines import Line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.operation_window import (
    BACKWARD,
    CONVERT,
    READ,
    STABLE,
    STEPS,
    VIEW,
    WRITTEN,
    Frame,
    OperationWindow,
)

MIN_ADDED_NS, MAX_ADDED_NS = 2_000.0, 15_000.0
"""What the recorder may add to the gap before each operation. Beside other programs it was 6 to 16 us in ten of twelve
public programs."""

MAX_GAP_NS = 200_000
"""A longer gap before an operation is not its own preparation but other Python code of the program."""

MAX_LINES = 4

NEARLY_ALL = 0.95
"""Part of a line's time that must be wasted for the line to be the one to change."""


class Dataflow:
    """The judged step of ``window``; ``others`` are further windows of the same thread."""

    def __init__(self, window: OperationWindow, others: Sequence[OperationWindow] = ()) -> None:
        self.window = window
        self.others = tuple(others)
        self.operations = window.operations
        self.names = [function.name for function in window.functions]
        self.first, self.end = window.first_operations[1], window.first_operations[2]
        self.step = range(self.first, self.end)
        """The operations of the judged step."""
        self.readers: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """Value -> (operation, geometry) of each that reads it."""
        self.writers: dict[int, list[int]] = defaultdict(list)
        """Storage -> the operations that write over its memory."""
        for number, operation in enumerate(window.operations):
            for value, geometry in operation.inputs():
                self.readers[value].append((number, geometry))
            for value, _, how in operation.outputs():
                if how == WRITTEN:
                    self.writers[window.value_storage[value]].append(number)
        self._frames: dict[tuple[str, int, str], int] = {}
        self.last_values = {value for _, value in window.alive}
        """The values that existed at the end of the window."""

    def name(self, number: int) -> str:
        """Return the name of an operation's function, without its namespace."""
        return self.names[self.operations[number].function]

    def has(self, number: int, flags: int) -> bool:
        """Return whether an operation has one of these flags."""
        return bool(self.operations[number].flags & flags)

    def is_view(self, number: int) -> bool:
        """Return whether an operation only returns views."""
        hows = self.operations[number].writes[2::3]
        return bool(hows) and all(how == VIEW for how in hows)

    def made(self, number: int) -> list[int]:
        """Return the values that an operation made or wrote."""
        return [value for value, _, how in self.operations[number].outputs() if how != VIEW]

    def forward_of(self, number: int) -> int | None:
        """Return the operation whose backward an operation of a backward pass is part of.

        It is itself one of a backward pass, if that made a graph (``create_graph=True``).
        """
        operation = self.operations[number]
        if operation.flags & BACKWARD and operation.node >= 0:
            return self.window.nodes.get(operation.node)
        return None

    @cached_property
    def backward_of(self) -> dict[int, list[int]]:
        """The operations of the step's backward passes, by their forward operation."""
        found = defaultdict(list)
        for number in self.step:
            forward = self.forward_of(number)
            if forward is not None:
                found[forward].append(number)
        return found

    def with_backward(self, numbers: Iterable[int]) -> list[int]:
        """Return operations and those of their backward, each once."""
        found: dict[int, None] = {}
        for number in numbers:
            found[number] = None
            found.update(dict.fromkeys(self.backward_of.get(number, ())))
        return list(found)

    def stack(self, number: int) -> list[Frame]:
        """Return the stack of an operation, innermost first; in backward that of its forward operation.

        Of the backward of a derivative, it is that of the operation whose derivative it is.
        """
        operation = self.operations[number]
        if operation.inside >= 0:
            return self.window.stacks[operation.inside]
        forward = self.forward_of(number)
        if forward is not None and forward < number and (stack := self.stack(forward)):
            return stack
        return self.caller_of_backward(number)

    def caller_of_backward(self, number: int) -> list[Frame]:
        """Return the stack that called the backward pass of an operation."""
        outside = self.operations[number].outside
        return self.window.stacks[outside] if outside >= 0 else []

    def frame(self, number: int) -> Frame | None:
        """Return the innermost frame of the program's own code; an installed package's if there is no other."""
        stack = self.stack(number)
        return next((frame for frame in stack if not frame.is_installed), stack[0] if stack else None)

    def line(self, number: int) -> Line:
        """Return the line of an operation."""
        return line_of(self.frame(number))

    def outermost(self, number: int) -> Line:
        """Return the outermost known line of an operation, usually that of the training loop."""
        stack = self.stack(number)
        return line_of(stack[-1] if stack else None)

    def lines(self, numbers: Iterable[int]) -> list[Line]:
        """Return the lines of operations, the most expensive first."""
        costs: Counter[Line] = Counter()
        for number in numbers:
            costs[self.line(number)] += self.cost(number)  # type: ignore[assignment]
        return [line for line, _ in costs.most_common(MAX_LINES)]

    def lines_of(self, roots: Mapping[int, Line], numbers: Iterable[int]) -> tuple[Line, ...]:
        """Return the lines to change for operations, from ``roots``, the most expensive first."""
        costs: Counter[Line] = Counter()
        for number in numbers:
            costs[roots[number]] += self.cost(number)  # type: ignore[assignment]
        return tuple(line for line, _ in costs.most_common(MAX_LINES))

    def callers(self, numbers: Iterable[int]) -> list[Line]:
        """Return the lines that call those of operations, the most expensive first."""
        costs: Counter[Line] = Counter()
        for number in numbers:
            for frame in self.stack(number)[1:]:
                if not frame.is_installed:
                    costs[line_of(frame)] += self.cost(number)  # type: ignore[assignment]
        return [line for line, _ in costs.most_common(MAX_LINES)]

    def roots(self, numbers: Iterable[int], part: float = NEARLY_ALL) -> dict[int, Line]:
        """Return the line to change for each of these operations: the outermost one all of whose operations are wasted.

        ``part`` of the time of that line is enough.
        """
        wasted = set(numbers)
        whole: Counter[tuple[int, ...]] = Counter()
        own: Counter[tuple[int, ...]] = Counter()
        for number in self.step:
            if self.operations[number].flags & (BACKWARD | READ):
                continue
            cost = self.cost(number)
            for chain in self._chains(number):
                whole[chain] += cost  # type: ignore[assignment]
                if number in wasted:
                    own[chain] += cost  # type: ignore[assignment]
        return {number: self._root(number, whole, own, part) for number in wasted}

    def _root(
        self, number: int, whole: Counter[tuple[int, ...]], own: Counter[tuple[int, ...]], part: float
    ) -> Line:
        stack = self.stack(number)
        for depth, chain in enumerate(self._chains(number), start=1):
            frame = stack[-depth]
            if not frame.is_installed and own[chain] >= part * whole[chain]:
                return line_of(frame)
        return self.line(number)

    def _chains(self, number: int) -> list[tuple[int, ...]]:
        """Return the calls that lead to an operation, from the outermost alone to all of them."""
        stack = self.stack(number)[::-1]
        keys = [
            self._frames.setdefault((frame.file, frame.line, frame.function), len(self._frames))
            for frame in stack
        ]
        return [tuple(keys[:depth]) for depth in range(1, len(keys) + 1)]

    def signature(self, number: int) -> tuple[object, ...]:
        """Return what identifies an operation in other steps and windows."""
        operation = self.operations[number]
        stack = tuple(self.window.stacks[operation.inside]) if operation.inside >= 0 else ()
        return stack, self.names[operation.function], operation.nth

    # Costs

    @cached_property
    def _times(self) -> tuple[list[float], list[float]]:
        """The time of each operation of the step, and the gap before it, with what the recorder added."""
        kinds = _kinds(self.window, 1)
        rows = []
        for window in (self.window, *self.others):
            own = dict(window.gpu)
            for step in range(STEPS):
                begin, end = window.first_operations[step], window.first_operations[step + 1]
                part = window.operations[begin:end]
                if _kinds(window, step) == kinds:
                    rows.append(
                        [(own.get(at, each.duration), each.gap) for at, each in enumerate(part, start=begin)]
                    )
        times = [float(min(row[at][0] for row in rows)) for at in range(len(kinds))]
        gaps = [float(min(row[at][1] for row in rows)) for at in range(len(kinds))]
        return times, gaps

    @cached_property
    def _bare(self) -> list[list[float]]:
        """The times of the steps before the windows with the same operations, sorted."""
        kinds = _kinds(self.window, 1)
        alike = (each for each in self.others if any(_kinds(each, step) == kinds for step in range(STEPS)))
        return [sorted(each.bare) for each in (self.window, *alike)]

    @cached_property
    def bare_ns(self) -> float:
        """The median time of a step before the windows."""
        return min(float(middle(times)) for times in self._bare)

    @cached_property
    def added_ns(self) -> float:
        """What the recorder added to each gap.

        Times and gaps are the shortest of several steps, so they are compared with a short step: beside other programs
        the median step takes much longer. The shortest one of all may be an odd one.
        """
        times, gaps = self._times
        short_ns = min(float(steps[min(1, len(steps) - 1)]) for steps in self._bare)
        added = (sum(times) + sum(gaps) - short_ns) / max(1, len(times))
        return min(max(added, MIN_ADDED_NS), MAX_ADDED_NS)

    @cached_property
    def own_gaps(self) -> list[float]:
        """The gap before each operation of the step, without what the recorder added."""
        return [max(0.0, gap - self.added_ns) for gap in self._times[1]]

    @cached_property
    def step_ns(self) -> float:
        """The time of the step: all operations and gaps."""
        return max(1.0, sum(self._times[0]) + sum(self.own_gaps))

    def time(self, number: int) -> float:
        """Return the time of an operation of the step itself."""
        return self._times[0][number - self.first] if number in self.step else 0.0

    def cost(self, number: int) -> float:
        """Return the time that an operation costs with its preparation; 0 outside of the judged step."""
        if number not in self.step:
            return 0.0
        gap = self.own_gaps[number - self.first]
        if not self._converts(number):
            gap = min(gap, MAX_GAP_NS)
        return self.time(number) + gap

    def _converts(self, number: int) -> bool:
        """Return whether the gap before an operation is the conversion of Python or NumPy values to what it reads."""
        if not self.has(number, CONVERT) or number <= self.first:
            return False
        here, before = self.stack(number)[:1], self.stack(number - 1)[:1]
        return bool(here) and bool(before) and here[0].function == before[0].function

    def share(self, numbers: Iterable[int]) -> float:
        """Return the share of the step that operations cost, each counted once."""
        return sum(self.cost(number) for number in set(numbers)) / self.step_ns

    def is_stable(self, number: int) -> bool:
        """Return whether an operation follows from what is the same in every step."""
        return self.has(number, STABLE)


def _kinds(window: OperationWindow, step: int) -> list[str]:
    """Return the functions that a step of a window calls, in order."""
    begin, end = window.first_operations[step], window.first_operations[step + 1]
    return [window.functions[each.function].name for each in window.operations[begin:end]]


def line_of(frame: Frame | None) -> Line:
    """Return the line of a frame; one without a file if there is none."""
    return Line("", 0) if frame is None else Line(frame.file, frame.line, frame.function)


def middle(values: Sequence[float]) -> float:
    """Return the median, the higher of two."""
    return sorted(values)[len(values) // 2]


def find_dataflow(evidence: Evidence, trainer: Trainer) -> Dataflow | None:
    """Return the judged step of the trainer's first dataflow window; None without one."""
    windows = [each for each in evidence.timeline.operation_windows if each.thread == trainer.thread]
    return Dataflow(windows[0], windows[1:]) if windows else None
