"""The operations of a section of the program's own code, in the recorded step: their lines, and how long they are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl

from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_events import thread_spans
from perfwrap.measures.account.parts import INTERRUPTIONS
from perfwrap.measures.dataflow.dataflow import Dataflow, find_dataflow, line_of
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.python_gaps import PythonGap
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.operation_window import HOST, READ, Frame

MAIN_PART = 0.5
"""Part of a section's time in operations that passes through its main line."""
MAX_STEP_SHARE = 0.6
"""Share of a step above which a line calls the training, and not the section."""
LONG_NS = 50_000
"""Time of an operation from which its work, and not its call, takes the time."""


def find_gap_lines(evidence: Evidence, trainer: Trainer, gap: PythonGap) -> tuple[tuple[Line, float], ...]:
    """Return the lines whose operations take the time of a section, and their shares of it, largest first.

    Nothing without a dataflow window, or if the section is not in the judged step.
    """
    flow = evidence.get(find_dataflow, trainer)
    if flow is None:
        return ()
    costs: Counter[Line] = Counter()
    for number in _operations(evidence, trainer, flow, gap):
        costs[flow.line(number)] += flow.cost(number)  # type: ignore[assignment]
    whole = sum(costs.values())
    return tuple((line, cost / whole) for line, cost in costs.most_common() if line.file and whole)


def find_main_line(evidence: Evidence, trainer: Trainer, gap: PythonGap) -> Line | None:
    """Return the innermost line through which most of a section's operations are called.

    None without a dataflow window, or if most of the whole step passes through that line: it calls the training.
    """
    flow = evidence.get(find_dataflow, trainer)
    numbers = _operations(evidence, trainer, flow, gap) if flow is not None else []
    if flow is None or not numbers:
        return None
    found = None
    left = [([frame for frame in flow.stack(number) if not frame.is_installed], number) for number in numbers]
    least = MAIN_PART * sum(flow.cost(number) for number in numbers)
    while True:
        costs: Counter[Frame] = Counter()
        for stack, number in left:
            if stack:
                costs[stack[-1]] += flow.cost(number)  # type: ignore[assignment]
        frame, cost = costs.most_common(1)[0] if costs else (None, 0)
        if frame is None or cost < least:
            break
        found = frame
        left = [(stack[:-1], number) for stack, number in left if stack and stack[-1] == frame]
    whole = [number for number in flow.step if found in flow.stack(number)]
    return None if found is None or flow.share(whole) > MAX_STEP_SHARE else line_of(found)


def long_work_share(evidence: Evidence, trainer: Trainer, gap: PythonGap) -> float:
    """Return the share of a section's time in operations that each take at least ``LONG_NS``; 0 if it is unknown."""
    flow = evidence.get(find_dataflow, trainer)
    if flow is None:
        return 0.0
    numbers = _operations(evidence, trainer, flow, gap)
    long_ns = sum(time for number in numbers if (time := flow.time(number)) >= LONG_NS)
    return long_ns / max(1.0, gap.per_step_ns, sum(flow.cost(number) for number in numbers))


def _operations(evidence: Evidence, trainer: Trainer, flow: Dataflow, gap: PythonGap) -> list[int]:
    """Return the operations of a section in the judged step."""
    if gap.after is None:
        return []
    begin, end = flow.window.opened, flow.window.opened + flow.window.ends[1]
    spans = thread_spans(evidence.timeline, trainer).filter(
        pl.col("start") < end,
        pl.col("start") + pl.col("duration") > begin,
        ~pl.col("category").is_in(INTERRUPTIONS),
    )
    starts, ends = spans["start"].to_numpy(), (spans["start"] + spans["duration"]).to_numpy()
    reached = np.maximum.accumulate(ends)
    # The event that ended last before a moment is the one before the section.
    latest = np.maximum.accumulate(np.where(ends == reached, np.arange(ends.size), 0))
    names, lines = spans["operation"].to_list(), spans["line"].to_list()
    found = []
    for number in flow.step:
        moment = flow.window.opened + flow.operations[number].start
        place = int(np.searchsorted(starts, moment, side="right")) - 1
        if not 0 <= place < len(names) - 1 or reached[place] > moment or flow.has(number, HOST | READ):
            continue
        last = latest[place]
        around = names[last], lines[last], names[place + 1]
        if around == (gap.after_operation, gap.after.line, gap.before_operation):
            found.append(number)
    return found
