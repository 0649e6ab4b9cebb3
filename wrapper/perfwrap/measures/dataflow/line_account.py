"""The judged step by lines of the program: forward, its backward, optimizer, and Python in between.

All of the step is attributed: each operation to the user's line that called it (library code folds into that line),
backward to the line of its forward operation, and the gap before an operation, as far as it is longer than the
operation's own preparation, to Python at that line. Waits for data in such gaps are a part of their own, at the lines
that py-spy saw in the data set.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.lines import Line
from perfwrap.measures.data_loading.loaders import find_loaders
from perfwrap.measures.dataflow.dataflow import MAX_GAP_NS, Dataflow, find_dataflow
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.stacks import OUTSIDE, sampled_making
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.operation_window import BACKWARD, DATA, OPTIMIZER, READ

MAX_KINDS = 4

FORWARD, BACKWARD_PART, OPTIMIZER_PART, PYTHON, WAIT = "forward", "backward", "optimizer", "python", "data"
PARTS = (FORWARD, BACKWARD_PART, OPTIMIZER_PART, PYTHON, WAIT)

Interval = tuple[int, int]


@dataclass
class LineCost:
    """What one line costs in a step, in nanoseconds by part."""

    line: Line
    parts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    operations: int = 0
    kinds: tuple[tuple[str, int], ...] = ()
    """The functions that it calls most, and how often, backward included."""
    shape: str = ""
    """Type and shape of the first result of its most expensive operation."""
    module: str = ""
    """The path of the module in which it spends most."""

    @property
    def ns(self) -> float:
        """All parts together."""
        return sum(self.parts.values())


class ModuleCost(Struct, frozen=True):
    """What one module costs in a step without its children, in nanoseconds."""

    path: str
    kind: str
    forward_ns: float
    backward_ns: float
    operations: int
    model: int = 1
    """The number of its outermost module: that of two models of one class differs."""


class LineAccount(Struct, frozen=True):
    """The step by lines, the most expensive first, by modules, and by stacks."""

    step_ns: float
    bare_ns: float
    """The time of a step that was not watched."""
    lines: tuple[LineCost, ...]
    modules: tuple[ModuleCost, ...]
    stacks: dict[tuple[str, ...], float]
    """Frames from the outermost, ``train.py:12 step``, and the part at the end -> nanoseconds."""

    def share(self, cost: LineCost) -> float:
        """Return the share of the step that a line costs."""
        return cost.ns / self.step_ns


def find_line_account(evidence: Evidence, trainer: Trainer) -> LineAccount | None:
    """Return the account of the trainer's first dataflow window; None without one."""
    flow = evidence.get(find_dataflow, trainer)
    if flow is None:
        return None
    spans = evidence.timeline.spans.filter(pl.col("track") == trainer.thread, pl.col("operation") == "data")
    ends = (spans["start"] + spans["duration"]).to_list()
    waits = list(zip(spans["start"].to_list(), ends, strict=True))
    return account_of(flow, waits, _making(evidence, trainer))


def _making(evidence: Evidence, trainer: Trainer) -> tuple[tuple[Line, int], ...]:
    """Return the lines that py-spy saw while the training thread made batches, with their samples."""
    own = [loader for loader in evidence.get(find_loaders, trainer) if loader.training and not loader.workers]
    sampled = evidence.get(sampled_making, trainer, own[0]) if len(own) == 1 else None
    if sampled is None or sampled.source != OUTSIDE:
        return ()
    return tuple((function.line, function.count) for function in sampled.functions)


def account_of(
    flow: Dataflow, waits: Sequence[Interval] = (), making: Sequence[tuple[Line, int]] = ()
) -> LineAccount:
    """Return the account of a step; ``waits`` are the times of its thread in which it waited for data.

    These waits without an operation are divided by the samples of the lines in ``making``; without any, each belongs to
    the line of the operation that comes next.
    """
    unplaced = 0.0
    costs: dict[Line, LineCost] = {}
    kinds: dict[Line, Counter[str]] = defaultdict(Counter)
    modules: dict[Line, Counter[int]] = defaultdict(Counter)
    costliest: dict[Line, tuple[float, int]] = {}
    stacks: dict[tuple[str, ...], float] = {}
    by_module: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
    for number in flow.step:
        operation = flow.operations[number]
        part = _part_of(operation.flags)
        line = flow.line(number)
        cost = costs.setdefault(line, LineCost(line))
        gap = flow.own_gaps[number - flow.first]
        own = min(gap, MAX_GAP_NS)
        waited = min(gap - own, _waited(flow, number, waits))
        worked = flow.time(number) + own
        cost.parts[part] += worked
        if making:
            unplaced += waited
        else:
            cost.parts[WAIT] += waited
        cost.parts[PYTHON] += gap - own - waited
        if not operation.flags & READ:
            cost.operations += 1
            kinds[line][flow.name(number)] += 1
        module = _module_of(flow, number)
        modules[line][module] += int(worked)
        entry = by_module[module]
        entry[part == BACKWARD_PART] += worked
        entry[2] += 1
        if worked > costliest.get(line, (0.0, 0))[0]:
            costliest[line] = worked, number
        frames = tuple(
            f"{_short(frame.file)}:{frame.line} {frame.function}" for frame in flow.stack(number)[::-1]
        )
        _add(stacks, (*frames, part), worked)
        if gap - own - waited > 0:
            _add(stacks, (*frames, PYTHON), gap - own - waited)
    sampled = sum(count for _, count in making)
    for line, count in making:
        costs.setdefault(line, LineCost(line)).parts[WAIT] += unplaced * count / sampled
    for line, cost in costs.items():
        cost.kinds = tuple(kinds[line].most_common(MAX_KINDS))
        cost.module = _path_of(flow, modules[line])
        cost.shape = _shape_of(flow, costliest[line][1]) if line in costliest else ""
    listed = flow.window.modules
    # Each outermost module is listed before those inside of it.
    models = list(accumulate("." not in module.path for module in listed))
    return LineAccount(
        flow.step_ns,
        flow.bare_ns,
        tuple(sorted(costs.values(), key=lambda cost: -cost.ns)),
        tuple(
            ModuleCost(
                listed[number].path, listed[number].kind, entry[0], entry[1], int(entry[2]), models[number]
            )
            for number, entry in sorted(by_module.items())
            if number >= 0
        ),
        stacks,
    )


def _add(stacks: dict[tuple[str, ...], float], stack: tuple[str, ...], ns: float) -> None:
    stacks[stack] = stacks.get(stack, 0.0) + ns


def _part_of(flags: int) -> str:
    """Return the part of the step to which an operation belongs."""
    if flags & BACKWARD:
        return BACKWARD_PART
    if flags & OPTIMIZER:
        return OPTIMIZER_PART
    return WAIT if flags & DATA else FORWARD


def _module_of(flow: Dataflow, number: int) -> int:
    """Return the module that ran an operation, or its forward operation; -1 without one."""
    operation = flow.operations[number]
    forward = flow.forward_of(number)
    return operation.module if operation.module >= 0 or forward is None else flow.operations[forward].module


def _path_of(flow: Dataflow, costs: Counter[int]) -> str:
    """Return the path that the modules of a line have in common, with ``*`` for numbers that differ."""
    paths = [flow.window.modules[number].path.split(".") for number in costs if number >= 0]
    if not paths:
        return ""
    common: list[str] = []
    for names in zip(*paths, strict=False):
        if len(set(names)) == 1:
            common.append(names[0])
        elif all(name.isdecimal() for name in names):
            common.append("*")
        else:
            break
    return ".".join(common).removesuffix(".*")


def _waited(flow: Dataflow, number: int, waits: Sequence[Interval]) -> float:
    """Return how long the thread waited for data in the gap before an operation."""
    if not waits:
        return 0.0
    operation = flow.operations[number]
    end = flow.window.opened + operation.start
    begin = end - operation.gap
    return float(sum(max(0, min(end, until) - max(begin, since)) for since, until in waits))


def _shape_of(flow: Dataflow, number: int) -> str:
    """Return type and shape of an operation's first result, e.g. ``float32[8, 64]``."""
    writes = flow.operations[number].writes
    if not writes:
        return ""
    geometry = flow.window.geometries[writes[1]]
    return f"{geometry.dtype.removeprefix('torch.')}[{', '.join(map(str, geometry.shape))}]"


def _short(path: str) -> str:
    """Return the name of a file."""
    return path.rpartition("/")[2]
