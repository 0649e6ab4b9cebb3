"""Draws dataflow windows by hand: a function draws one step, and the windows have three of it each, as the recorder's.

Memory, values, stability and checksums follow from what is drawn, by the recorder's rules. Each operation takes 100 µs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from perfwrap.measures.dataflow.dataflow import Dataflow
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.timeline.model import Timeline
from perfwrap.timeline.operation_window import (
    ACCUMULATE,
    BACKWARD,
    CONVERT,
    DATA,
    HOST,
    NEW,
    NO_GRAD,
    OPTIMIZER,
    RANDOM,
    READ,
    STABLE,
    STEPS,
    VIEW,
    WRITTEN,
    Frame,
    Function,
    Geometry,
    Module,
    Operation,
    OperationWindow,
    Storage,
)

TOOK = 100_000
"""How long an operation takes, in nanoseconds."""

DYNAMIC, RANDOM_ONES, EMPTY = ("nonzero", "masked_select", "unique"), ("rand", "randn", "dropout"), ("empty",)

Where = int | str | Sequence[str]
"""A line of train.py, or frames such as "net.py:5 forward", the innermost first; "lib/…" is an installed package."""


@dataclass
class Memory:
    """One storage and the value that is in it now."""

    storage: int
    value: int
    stable: bool
    kept: bool
    """Whether it exists at the end of the window."""


@dataclass(frozen=True)
class Tensor:
    """A part of memory."""

    memory: Memory
    geometry: int


class Drawing:
    """The window that is being drawn."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.functions: dict[str, int] = {}
        self.geometries: dict[tuple[int, tuple[int, ...], tuple[int, ...]], int] = {}
        self.stacks: dict[tuple[str, ...], int] = {}
        self.modules: dict[str, int] = {}
        self.memories: list[Memory] = []
        self.first_steps: list[int] = []
        self.value_storage: list[int] = []
        self.value_operation: list[int] = []
        self.sums: dict[int, int] = {}
        self.operations: list[Operation] = []
        self.firsts, self.ends = [0], list[int]()
        self.nodes: dict[int, int] = {}
        self.sorts: dict[int, int] = {}
        self.unowned: set[int] = set()
        self.old: dict[str, Tensor] = {}
        self.now = self.passes = 0

    def allocate(self, step: int, operation: int = -1, stable: bool = False, kept: bool = False) -> Memory:
        """Return new memory."""
        self.first_steps.append(step)
        memory = Memory(len(self.memories), -1, stable, kept)
        self.memories.append(memory)
        self.write(memory, operation, stable)
        return memory

    def write(self, memory: Memory, operation: int, stable: bool) -> None:
        """Put a new value in memory."""
        memory.value, memory.stable = len(self.value_storage), stable
        self.value_storage.append(memory.storage)
        self.value_operation.append(operation)

    def geometry(self, shape: tuple[int, ...], offset: int = 0, stride: tuple[int, ...] = ()) -> int:
        """Return the number of a geometry."""
        whole = stride or tuple(_product(shape[place + 1 :]) for place in range(len(shape)))
        return self.geometries.setdefault((offset, shape, whole), len(self.geometries))

    def stack(self, where: Where) -> int:
        """Return the number of a stack."""
        frames = (f"train.py:{where} main",) if isinstance(where, int) else where
        frames = (frames,) if isinstance(frames, str) else tuple(frames)
        return self.stacks.setdefault(frames, len(self.stacks))

    def window(self) -> OperationWindow:
        """Return the window."""
        return OperationWindow(
            format=1,
            torch="2.9.0",
            thread=1,
            opened=1_000,
            ends=self.ends,
            first_operations=self.firsts,
            bare=[self.ends[1] - self.ends[0]] * 5,
            own=0,
            functions=[_function(name) for name in self.functions],
            geometries=[
                Geometry(offset, list(shape), list(stride), "torch.float32", 4)
                for offset, shape, stride in self.geometries
            ],
            storages=[Storage(step, 4, False) for step in self.first_steps],
            value_storage=self.value_storage,
            value_operation=self.value_operation,
            value_sums=self.sums,
            stacks=[[_frame(text) for text in frames] for frames in self.stacks],
            modules=[Module(path, "GRU" if path.endswith(".gru") else "Net") for path in self.modules],
            operations=self.operations,
            gpu=[],
            # Local variables keep what the last step made.
            alive=[
                (each.storage, each.value)
                for each in self.memories
                if each.kept or self.first_steps[each.storage] == STEPS - 1
            ],
            unowned=sorted(self.unowned),
            nodes=self.nodes,
            sorts=self.sorts,
        )


class Step:
    """Draws one step; ``number`` is its place in its window, ``window`` that of the window."""

    def __init__(self, drawing: Drawing, number: int) -> None:
        self._drawing = drawing
        self.number, self.window = number, drawing.number
        self._counts: dict[tuple[int, int], int] = {}
        self._pass, self._outside = -1, -1

    def old(self, name: str, *shape: int) -> Tensor:
        """Return memory that is older than the window: a parameter, a buffer, or the state of an optimizer."""
        drawing = self._drawing
        if name not in drawing.old:
            memory = drawing.allocate(0, stable=True, kept=True)
            drawing.old[name] = Tensor(memory, drawing.geometry(shape or (8, 8)))
        return drawing.old[name]

    def batch(self, *shape: int) -> Tensor:
        """Return memory that came from somewhere else in this step."""
        return Tensor(self._drawing.allocate(self.number), self._drawing.geometry(shape or (8, 8)))

    def call(
        self,
        name: str,
        *inputs: Tensor,
        line: Where = 10,
        shape: tuple[int, ...] = (8, 8),
        into: Tensor | None = None,
        of_part: bool = False,
        results: int = 1,
        differs: bool = False,
        node_of: Tensor | None = None,
        **more: Any,
    ) -> Any:
        """Call a function that returns new memory, or that writes ``into`` one; ``results`` are their number.

        With ``of_part`` it writes only a part of that memory, and what it held before counts as read.

        With ``differs`` the results are not the same in each step, though nothing shows why.
        """
        drawing, number = self._drawing, len(self._drawing.operations)
        flags = more.pop("flags", 0) | (RANDOM if name in RANDOM_ONES else 0)
        odd = BACKWARD | OPTIMIZER | DATA | RANDOM | HOST
        stable = not flags & odd and all(each.memory.stable for each in inputs)
        writes: list[int] = []
        made: list[Tensor] = []
        reads = [one for each in inputs for one in (each.memory.value, each.geometry)]
        if into is not None:
            if name not in ("copy_", "fill_", "zero_") or of_part:
                reads = [into.memory.value, into.geometry, *reads]
                stable = stable and into.memory.stable
            drawing.write(into.memory, number, stable)
            writes = [into.memory.value, into.geometry, WRITTEN]
            made = [into]
        else:
            for _ in range(results):
                made.append(
                    Tensor(drawing.allocate(self.number, number, stable), drawing.geometry(tuple(shape)))
                )
                writes += [made[-1].memory.value, made[-1].geometry, NEW]
        for each in made if stable else ():
            drawing.sums[each.memory.value] = 7 if not differs else 10 * self.window + self.number + 1
        self._row(name, line, flags | (STABLE if stable else 0), reads, writes, **more)
        return (made[0] if results == 1 else tuple(made)) if made else None

    def sort(self, *shape: int, dim: int = -1, name: str = "sort", line: Where = 20) -> tuple[Tensor, Tensor]:
        """Sort a batch, and return values and places."""
        self._drawing.sorts[len(self._drawing.operations)] = dim
        return self.call(name, self.batch(*shape), shape=shape, results=2, line=line)  # type: ignore[no-any-return]

    def view(
        self,
        tensor: Tensor,
        *shape: int,
        name: str = "select",
        line: Where = 10,
        offset: int = 0,
        stride: tuple[int, ...] = (),
        **more: Any,
    ) -> Tensor:
        """Return another view of the same memory."""
        made = Tensor(tensor.memory, self._drawing.geometry(shape, offset, stride))
        value = tensor.memory.value
        stable = STABLE if tensor.memory.stable else 0
        flags = more.pop("flags", 0) | stable
        self._row(name, line, flags, [value, tensor.geometry], [value, made.geometry, VIEW], **more)
        return made

    def convert(self, *shape: int, name: str = "lift_fresh", line: Where = 10, **more: Any) -> Tensor:
        """Return memory that Python or NumPy values are converted to: the same in each step."""
        made = Tensor(
            self._drawing.allocate(self.number, stable=True), self._drawing.geometry(shape or (8, 8))
        )
        return self.view(made, *(shape or (8, 8)), name=name, line=line, flags=CONVERT, **more)

    def item(self, tensor: Tensor, line: Where = 40, flags: int = 0) -> None:
        """Let the host read a value."""
        self._row("_local_scalar_dense", line, HOST | flags, [tensor.memory.value, tensor.geometry], [])

    def numpy(self, tensor: Tensor, line: Where = 40) -> None:
        """Let the program take memory in a way that no operation shows."""
        self._row("numpy", line, HOST | READ, [tensor.memory.value, tensor.geometry], [], ns=0)

    def backward(self, line: Where = 30) -> None:
        """Begin a backward pass."""
        self._drawing.passes += 1
        self._pass = self._drawing.passes
        self._outside = self._drawing.stack(line)

    def gradient(
        self,
        of: Tensor,
        *inputs: Tensor,
        name: str = "mm",
        results: int = 1,
        creates: bool = False,
        **more: Any,
    ) -> Any:
        """Return the gradient that the node of an operation computes; ``creates`` is create_graph=True."""
        flags = BACKWARD | (0 if creates else NO_GRAD) | more.pop("flags", 0)
        return self.call(name, *inputs, results=results, flags=flags, node=of.memory.value, line=(), **more)

    def accumulate(self, name: str, gradient: Tensor, owned: bool = True) -> Tensor:
        """Add a gradient to that of a parameter: older memory, which an optimizer has if ``owned``."""
        total = self.old(name)
        self.call("add_", gradient, into=total, flags=BACKWARD | NO_GRAD | ACCUMULATE, line=())
        if not owned:
            self._drawing.unowned.add(total.memory.storage)
        return total

    def optimize(self, parameter: Tensor, *gradients: Tensor, line: Where = 50) -> None:
        """Update a parameter."""
        self.call("addcdiv_", *gradients, into=parameter, flags=OPTIMIZER | NO_GRAD, line=line)

    def clear(self, name: str, line: Where = 51) -> None:
        """Set the gradient of a parameter to zero."""
        self.call("zero_", into=self.old(name), flags=NO_GRAD, line=line)

    def train(self, loss: Tensor, *parameters: Tensor) -> None:
        """Let backward and the optimizer use a result, so that it is alive."""
        self.backward()
        for number, parameter in enumerate(parameters or (self.old("weight"),)):
            self.optimize(parameter, self.gradient(loss, loss, scalars=number))

    def _row(
        self,
        name: str,
        line: Where,
        flags: int,
        reads: list[int],
        writes: list[int],
        ns: int = TOOK,
        gap: int = 0,
        scalars: int = 0,
        node: int | None = None,
        module: str = "",
    ) -> None:
        drawing, number = self._drawing, len(self._drawing.operations)
        is_backward = bool(flags & BACKWARD)
        function = drawing.functions.setdefault(name, len(drawing.functions))
        inside = -1 if is_backward and line == () else drawing.stack(line)
        nth = -1
        if not is_backward:
            nth = self._counts.get((inside, function), 0)
            self._counts[inside, function] = nth + 1
            if writes and writes[2] != VIEW and not flags & OPTIMIZER:
                node = writes[0]
                drawing.nodes[node] = number
        elif not flags & NO_GRAD and writes and writes[2] != VIEW:
            drawing.nodes[writes[0]] = number  # create_graph=True
        drawing.now += gap
        drawing.operations.append(
            Operation(
                function=function,
                inside=inside,
                outside=self._outside if is_backward else -1,
                flags=flags,
                reads=reads,
                scalars=scalars,
                writes=writes,
                start=drawing.now,
                duration=ns,
                gap=gap,
                node=-1 if node is None else node,
                backward=self._pass if is_backward else -1,
                nth=nth,
                module=drawing.modules.setdefault(module, len(drawing.modules)) if module else -1,
            )
        )
        drawing.now += ns

    def end(self) -> None:
        """End the step."""
        self._drawing.firsts.append(len(self._drawing.operations))
        self._drawing.ends.append(self._drawing.now)


Draw = Callable[[Step], object]


def draw(body: Draw, windows: int = 2) -> list[OperationWindow]:
    """Return windows, each with three steps that ``body`` draws."""
    made = []
    for window in range(windows):
        drawing = Drawing(window)
        for number in range(STEPS):
            step = Step(drawing, number)
            body(step)
            step.end()
        made.append(drawing.window())
    return made


def draw_flow(body: Draw, windows: int = 2) -> Dataflow:
    """Return the judged step of windows that ``body`` draws."""
    first, *others = draw(body, windows)
    return Dataflow(first, others)


def add_windows(timeline: Timeline, body: Draw, thread: int | None = None) -> Timeline:
    """Return a timeline with windows that ``body`` draws, of its trainer if not of another ``thread``."""
    trainer = Evidence(timeline).get(find_main_trainer)
    assert trainer is not None
    owner = trainer.thread if thread is None else thread
    made = [msgspec.structs.replace(window, process=trainer.process, thread=owner) for window in draw(body)]
    return replace(timeline, operation_windows=tuple(made))


def _product(sizes: Sequence[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def _frame(text: str) -> Frame:
    place, _, function = text.partition(" ")
    file, _, line = place.partition(":")
    return Frame(file, int(line), function, file.startswith("lib/"))


def _function(name: str) -> Function:
    plain, _, overload = name.rpartition("::")[2].partition(".")
    return Function(
        plain,
        f"aten.{plain}.{overload or 'default'}",
        name.rpartition("::")[0] or "aten",
        name in RANDOM_ONES,
        name in DYNAMIC,
        False,
        name in EMPTY,
    )
