"""The training steps of an unmodified loop, found afterwards from what was recorded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from perfwrap.measures.detail_cost import find_detail_ns
from perfwrap.measures.epochs import batches_of
from perfwrap.measures.loop_end import find_loop_end
from perfwrap.measures.loop_events import Integers, LoopEvents, loop_events, thread_spans
from perfwrap.measures.marked_steps import mark_name, marked_steps, span_the_loop
from perfwrap.measures.periodic_steps import periodic_steps
from perfwrap.measures.phases import Phases, find_phases
from perfwrap.measures.rests import with_lines
from perfwrap.measures.step_ends import StepEnds, ends_of_marks, find_step_ends
from perfwrap.measures.thinned import stretch_edges
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.warm_up import warm_up_length
from perfwrap.measures.windows import find_windows, touched
from perfwrap.timeline.model import Timeline

ENOUGH_STEADY_STEPS = 20
"""Steady steps that a verdict wants; with fewer the diagnosis says how little it rests on."""

ENOUGH_IMPORTED_STEPS = 3
"""As many as a profiler's window usually has; who records one leaves the warm-up out of it."""

COUNTED_IN_RESTS = ("optimizer", "data")
"""Operations whose probes count while the others rest."""

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


@dataclass(frozen=True)
class Steps:
    """The steps of one trainer, in order and without gaps: a step starts where the one before it ended.

    ``table`` has the columns of STEP_COLUMNS; ``detailed`` is false for steps whose detail was thinned
    away: they are counted, their ends are evenly spaced. ``windowed`` ones were watched by torch's profiler
    for perfwrap, and are never steady. ``epoch`` and ``samples`` are null where no loader
    told them. ``anchor`` says in words what ended a step. ``warm_up_end`` is where the first steady step
    starts and ``warm_up_steps`` how many came before it. ``loop_end`` is where the loop ends: the end of
    the last step, or of what follows it when the loop also held such phases between steps (a validation
    after every epoch).
    """

    table: pl.DataFrame
    anchor: str
    warm_up_end: int
    warm_up_steps: int
    loop_end: int
    phases: Phases
    """The validation phases, which the search for steps found along the way."""
    events: LoopEvents
    """What the search worked on."""
    detail_ns: float = 0.0
    """What recording a steady step in detail cost it, likely."""

    @property
    def count(self) -> int:
        """How many steps there were."""
        return self.table.height

    @property
    def steady(self) -> int:
        """How many of them came after the warm-up."""
        return int(self.table["steady"].sum())

    @property
    def few(self) -> bool:
        """Whether there are too few steady steps to rest a verdict on."""
        return self.steady < ENOUGH_STEADY_STEPS

    @property
    def median_ns(self) -> float | None:
        """The median duration of the steady, detailed steps, as it is without the recording where most steps rest."""
        return self._without_detail(0.5)

    @property
    def p99_ns(self) -> float | None:
        """The duration that 99 % of the steady, detailed steps stay below, in the same way."""
        return self._without_detail(0.99)

    @property
    def samples_per_s(self) -> float | None:
        """Samples per second over the steady steps whose batch size is known; None when no loader told it."""
        known = self.table.filter("steady", pl.col("samples").is_not_null())
        samples, duration = known.select(pl.col("samples", "duration").sum()).row(0)
        return samples / duration * 1e9 if duration else None

    def detailed_quantile(self, share: float) -> float | None:
        """Return a quantile of the steady, detailed steps' durations as they were."""
        durations = self.table.filter("steady", "detailed")["duration"]
        return None if durations.is_empty() else float(durations.quantile(share, "linear") or 0.0)

    def _without_detail(self, share: float) -> float | None:
        """Return that quantile less the recording, unless most steps were recorded."""
        found = self.detailed_quantile(share)
        if found is None or self.table.filter("steady")["detailed"].mean() >= 0.5:  # type: ignore[operator]
            return found
        return max(0.0, found - self.detail_ns)


def enough_steady_steps(timeline: Timeline) -> int:
    """Return how many steady steps a verdict wants."""
    return ENOUGH_IMPORTED_STEPS if "imported" in timeline.run else ENOUGH_STEADY_STEPS


def find_steps(timeline: Timeline, trainer: Trainer) -> Steps:
    """Return the steps of a trainer; none when its thread did nothing that could be a step."""
    spans, sums = thread_spans(timeline, trainer), timeline.sums.filter(pl.col("track") == trainer.thread)
    summed = np.searchsorted(stretch_edges(sums), spans["start"].to_numpy(), side="right") % 2 == 1
    events = loop_events(spans, summed)
    spans = spans.filter(pl.Series(~summed, dtype=pl.Boolean) | (pl.col("operation") != "data"))
    phases = find_phases(events)
    marks, windows = marked_steps(timeline, trainer), find_windows(timeline, trainer)
    # The marks of a window are perfwrap's own: they tell of a few steps that are known anyway.
    is_marked = not windows[0].size and span_the_loop(marks, events)
    marked = ends_of_marks(marks, mark_name(timeline, trainer)) if is_marked else None
    found = marked or find_step_ends(events, phases)
    if found is None and "imported" in timeline.run:
        found = periodic_steps(timeline, trainer)
    if found is None:
        return Steps(pl.DataFrame(schema=STEP_COLUMNS), "", 0, 0, 0, phases, events)
    thinned = with_lines(sums, spans, phases)
    thinned = thinned.filter(~pl.col("validating") | ~pl.col("rest"))
    ends, detailed = _with_thinned(found, spans, thinned)
    starts = np.append(found.start, ends[:-1])
    # Lengths of thinned steps are averages: only steps in detail can tell where the loop settles.
    # Steps that torch's profiler watched for perfwrap are slower than they are otherwise.
    windowed = touched(windows, starts, ends)
    known = np.flatnonzero(detailed & ~windowed)
    warm_up = int(known[warm_up_length((ends - starts)[known])]) if known.size > 1 else 0
    epoch, samples = batches_of(events, phases, ends)
    table = pl.DataFrame(
        {
            "index": np.arange(ends.size),
            "start": starts,
            "end": ends,
            "duration": ends - starts,
            "steady": (np.arange(ends.size) >= warm_up) & ~windowed,
            "windowed": windowed,
            "detailed": detailed,
            "epoch": epoch,
            "samples": samples,
        },
        schema_overrides=STEP_COLUMNS,
    )
    loop_end = find_loop_end(spans, phases, found.start, ends)
    detail_ns = find_detail_ns(timeline, trainer, table, spans, thinned)
    return Steps(table, found.anchor, int(starts[warm_up]), warm_up, loop_end, phases, events, detail_ns)


def _with_thinned(
    found: StepEnds, spans: pl.DataFrame, sums: pl.DataFrame
) -> tuple[Integers, NDArray[np.bool_]]:
    """Return all ends, and which of them were recorded in detail.

    Stretches whose detail was thinned away hold as many steps as their exact sums of the anchor's
    operations say; where in the stretch each one ended is not known, so they are spaced evenly.
    """
    pieces = [found.ends]
    for start, end, count in _stretches(found, spans, sums).iter_rows():
        steps = round(count)
        before = found.ends[: np.searchsorted(found.ends, end)]
        begin = max(start, int(before[-1]) if before.size else found.start)
        if steps and end > begin:
            pieces.append(begin + (end - begin) * np.arange(1, steps + 1, dtype=np.int64) // steps)
    ends = np.concatenate(pieces)
    order = np.argsort(ends, kind="stable")
    return ends[order], (order < found.ends.size)


def _stretches(found: StepEnds, spans: pl.DataFrame, sums: pl.DataFrame) -> pl.DataFrame:
    """Return start and end of the thinned stretches, and the steps that they held by what was counted.

    That is the operations of the anchor, or, where those rest uncounted, forwards: they end the recorder's
    steps then.
    """
    operations = found.operations
    if not any(operation in COUNTED_IN_RESTS for operation in operations):
        uncounted = sums["rest"].any() and sums.filter(pl.col("operation").is_in(operations)).is_empty()
        operations = ("forward",) if uncounted else operations
    is_anchor = pl.col("operation").is_in(operations)
    per_step = spans.filter(is_anchor).height / found.ends.size
    counted = pl.col("count").filter(is_anchor).sum() / max(per_step, 1e-9)
    return sums.group_by("start", "end").agg(counted).sort("start")
