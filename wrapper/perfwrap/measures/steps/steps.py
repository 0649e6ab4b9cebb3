"""The training steps of an unmodified loop, derived from the recording."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.intervals import NOTHING, Intervals
from perfwrap.measures.account.loop_events import (
    OPTIMIZERS,
    Flags,
    Integers,
    LoopEvents,
    loop_events,
    thread_spans,
)
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.recorder.detail_cost import find_detail_ns
from perfwrap.measures.recorder.windows import find_windows, touched
from perfwrap.measures.steps.counted_steps import add_counted
from perfwrap.measures.steps.epochs import batches_of
from perfwrap.measures.steps.loop_end import find_loop_end
from perfwrap.measures.steps.marked_steps import mark_name, marked_steps, span_the_loop
from perfwrap.measures.steps.periodic_steps import periodic_steps
from perfwrap.measures.steps.phases import Phases, find_phases
from perfwrap.measures.steps.rests import with_lines
from perfwrap.measures.steps.step_ends import ends_of_marks, find_step_ends
from perfwrap.measures.steps.thinned import section_edges
from perfwrap.measures.steps.trainings import gaps_between_trainings
from perfwrap.measures.steps.warm_up import warm_up_length
from perfwrap.measures.trainers import Trainer

MAX_BEGINNINGS_SHARE = 0.25
"""If more steps than these are the first ones of an optimizer, making optimizers is part of the loop."""

STEP_COLUMNS = {
    "index": pl.Int64,
    "start": pl.Int64,
    "end": pl.Int64,
    "duration": pl.Int64,
    "steady": pl.Boolean,
    "windowed": pl.Boolean,
    "detailed": pl.Boolean,
    "epoch": pl.Int64,
    "samples": pl.Int64,
}


class Steps(Struct, frozen=True, dict=True):
    """The steps of one training thread, in order and without gaps: a step starts where the previous one ended.

    ``table`` has the columns of STEP_COLUMNS; ``detailed`` is false for steps without detail: they are counted, and
    their ends are evenly spaced. ``windowed`` steps were captured by torch.profiler for perfwrap and are never steady.
    Neither is the first step of another training, which holds the time since the training before it.
    ``epoch`` and ``samples`` are null if no loader shows them. ``anchor`` says in words what ends a step.
    ``warm_up_end`` is where the first steady step starts, and ``warm_up_steps`` how many came before it. ``loop_end``
    is where the loop ends: at the last step, or after what follows it if that also occurs between steps (a validation
    after every epoch).
    """

    table: pl.DataFrame
    anchor: str
    warm_up_end: int
    warm_up_steps: int
    loop_end: int
    phases: Phases
    """The validation phases, found while searching for steps."""
    events: LoopEvents
    """The events that were searched."""
    gaps: Intervals = NOTHING
    """The times between two trainings, in the first step of the later one."""
    detail_ns: float = 0.0
    """Estimated cost of recording one steady step in detail."""
    is_estimated: bool = False
    """Whether the number of steps follows from the operations per step of the detailed ones."""

    @property
    def count(self) -> int:
        """The number of steps."""
        return self.table.height

    @cached_property
    def steady(self) -> int:
        """The number of steps after the warm-up."""
        return int(self.table["steady"].sum())

    @cached_property
    def median_ns(self) -> float | None:
        """The median duration of the steady, detailed steps, without recording cost if most steps are not detailed."""
        return self._without_detail(0.5)

    @cached_property
    def p99_ns(self) -> float | None:
        """The duration that 99 % of the steady, detailed steps stay below, computed in the same way."""
        return self._without_detail(0.99)

    @cached_property
    def samples_per_s(self) -> float | None:
        """Samples per second over the steady steps with known batch size; None if no loader shows it."""
        known = self.table.filter("steady", pl.col("samples").is_not_null())
        samples, duration = known.select(pl.col("samples", "duration").sum()).row(0)
        return samples / duration * 1e9 if duration else None

    def detailed_quantile(self, share: float) -> float | None:
        """Return a quantile of the measured durations of the steady, detailed steps."""
        durations = self.table.filter("steady", "detailed")["duration"]
        return None if durations.is_empty() else float(durations.quantile(share, "linear") or 0.0)

    def _without_detail(self, share: float) -> float | None:
        """Return that quantile minus the recording cost, unless most steps were recorded in detail."""
        found = self.detailed_quantile(share)
        if found is None or self.table.filter("steady")["detailed"].mean() >= 0.5:  # type: ignore[operator]
            return found
        return max(0.0, found - self.detail_ns)


def find_steps(evidence: Evidence, trainer: Trainer) -> Steps:
    """Return the steps of a trainer; none if its thread has no possible steps."""
    timeline = evidence.timeline
    spans, sums = thread_spans(timeline, trainer), timeline.sums.filter(pl.col("track") == trainer.thread)
    edges = section_edges(sums)
    summed = np.searchsorted(edges, spans["start"].to_numpy(), side="right") % 2 == 1
    events = loop_events(spans, summed)
    spans = spans.filter(pl.Series(~summed, dtype=pl.Boolean) | (pl.col("operation") != "data"))
    phases = find_phases(events, _with_training(sums))
    marks, windows = marked_steps(timeline, trainer), find_windows(timeline, trainer)
    # The marks of a window are perfwrap's own: they cover a few steps that are known anyway.
    is_marked = not windows[0].size and span_the_loop(marks, events)
    marked = ends_of_marks(marks, mark_name(timeline, trainer)) if is_marked else None
    found = marked or find_step_ends(events, phases, edges[::2])
    if found is None and "imported" in timeline.run:
        found = periodic_steps(timeline, trainer)
    if found is None:
        return Steps(pl.DataFrame(schema=STEP_COLUMNS), "", 0, 0, 0, phases, events)
    thinned = with_lines(sums, spans, phases)
    thinned = thinned.filter(~pl.col("validating") | ~pl.col("rest"))
    ends, detailed, is_exact = add_counted(found, spans, thinned)
    starts = np.append(found.start, ends[:-1])
    # Lengths of steps without detail are averages: only detailed steps show where the warm-up ends.
    # Steps captured by torch.profiler for perfwrap are slower than usual.
    windowed = touched(windows, starts, ends)
    gaps = _between_trainings(events, phases, starts, ends, detailed)
    begins = touched(gaps, starts, ends)
    known = np.flatnonzero(detailed & ~windowed & ~begins)
    warm_up = int(known[warm_up_length((ends - starts)[known])]) if known.size > 1 else 0
    epoch, samples = batches_of(events, phases, ends)
    table = pl.DataFrame(
        {
            "index": np.arange(ends.size),
            "start": starts,
            "end": ends,
            "duration": ends - starts,
            "steady": (np.arange(ends.size) >= warm_up) & ~windowed & ~begins,
            "windowed": windowed,
            "detailed": detailed,
            "epoch": epoch,
            "samples": samples,
        },
        schema_overrides=STEP_COLUMNS,
    )
    loop_end = find_loop_end(spans, phases, found.start, ends)
    detail_ns = find_detail_ns(timeline, trainer, table, spans, thinned)
    return Steps(
        table,
        found.anchor,
        int(starts[warm_up]),
        warm_up,
        loop_end,
        phases,
        events,
        gaps,
        detail_ns,
        not is_exact,
    )


def _with_training(sums: pl.DataFrame) -> Integers:
    """Return the starts of the sections without detail in which something was trained."""
    trained = pl.col("operation").is_in((*OPTIMIZERS, "backward")) & (pl.col("count") > 0)
    return np.asarray(sums.filter(trained)["start"].unique().sort())


def _between_trainings(
    events: LoopEvents, phases: Phases, starts: Integers, ends: Integers, detailed: Flags
) -> Intervals:
    """Return the times between trainings, each within one step; none if making optimizers is part of the loop."""
    begin, until = gaps_between_trainings(events, phases)
    if begin.size > MAX_BEGINNINGS_SHARE * ends.size:
        return NOTHING
    step = np.minimum(np.searchsorted(ends, until), ends.size - 1)
    # Steps without detail are not among the events: they may be between the last event of a training and its end.
    begin = np.maximum(begin, starts[step])
    known = (begin < until) & detailed[step]
    return begin[known], until[known]
