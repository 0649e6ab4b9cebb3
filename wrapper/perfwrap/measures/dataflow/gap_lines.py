"""Which lines call the operations of a section of the program's own code, in the recorded step."""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl

from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_events import thread_spans
from perfwrap.measures.account.parts import INTERRUPTIONS
from perfwrap.measures.dataflow.dataflow import find_dataflow
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.python_gaps import PythonGap
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.operation_window import HOST, READ


def find_gap_lines(evidence: Evidence, trainer: Trainer, gap: PythonGap) -> tuple[tuple[Line, float], ...]:
    """Return the lines whose operations take the time of a section, and their shares of it, largest first.

    Nothing without a dataflow window, or if the section is not in the judged step.
    """
    flow = evidence.get(find_dataflow, trainer)
    if flow is None or gap.after is None:
        return ()
    begin, end = (flow.window.opened + moment for moment in flow.window.ends[:2])
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
    costs: Counter[Line] = Counter()
    for number in flow.step:
        moment = flow.window.opened + flow.operations[number].start
        place = int(np.searchsorted(starts, moment, side="right")) - 1
        if not 0 <= place < len(names) - 1 or reached[place] > moment or flow.has(number, HOST | READ):
            continue
        last = latest[place]
        around = names[last], lines[last], names[place + 1]
        if around == (gap.after_operation, gap.after.line, gap.before_operation):
            costs[flow.line(number)] += flow.cost(number)  # type: ignore[assignment]
    whole = sum(costs.values())
    return tuple((line, cost / whole) for line, cost in costs.most_common() if line.file and whole)
