"""The GPU's work in each step, from events around the phases, and how far the host ran ahead of it.

There are two bounds, because events only mark the ends of phases:

- *At most* the GPU was busy from the start of each phase to its end, and whenever it was behind. Waits for the host
  inside a phase count as busy.
- *At least* it was busy from the moment when the host recorded an event until the GPU reached it: its stream had work
  all that time.

Both are equal if the host is ahead, and differ much if the GPU waits for the host.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.journal_format import LEAD_BITS
from perfwrap.measures.account.intervals import Intervals, covered, union
from perfwrap.measures.account.loop_events import Flags, Integers
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline

WORK_COLUMNS: dict[str, Any] = {
    "index": pl.Int64,
    "duration": pl.Int64,
    "busy_most_ns": pl.Int64,
    "busy_least_ns": pl.Int64,
    "idle_ns": pl.Int64,
    "lead_ns": pl.Int64,
}

US = 1_000
LEAD_MASK = (1 << LEAD_BITS) - 1


class GpuWork(Struct, frozen=True, dict=True):
    """The GPU's time during the steady steps of one training thread that were timed on it, one row per step.

    ``table`` has the columns of WORK_COLUMNS. ``duration`` is the step's, on the host; ``idle_ns`` is the rest besides
    ``busy_most_ns``: no timed phase ran on the GPU, nor anything launched before one. Work that the program launches
    between the phases and on other streams is not recorded. ``lead_ns`` is how far the GPU was behind when the host
    ended its last phase of the step; null if the step ended none.
    """

    table: pl.DataFrame

    @cached_property
    def duration_ns(self) -> int:
        """The total length of these steps."""
        return int(self.table["duration"].sum())

    @property
    def busy_share(self) -> tuple[float, float]:
        """The share of the steps in which the GPU was busy, at least and at most."""
        return self._share("busy_least_ns"), self._share("busy_most_ns")

    @property
    def idle_share(self) -> float:
        """The share of the steps in which no phase ran on the GPU."""
        return self._share("idle_ns")

    @property
    def lead_ns(self) -> float | None:
        """The median of how far the host was ahead of the GPU at the end of a step."""
        leads = self.table["lead_ns"].drop_nulls()
        return None if leads.is_empty() else float(leads.median())  # type: ignore[arg-type]

    def _share(self, column: str) -> float:
        """Return a column's sum over the length of the steps."""
        return float(self.table[column].sum()) / self.duration_ns


class TimedPhases(Struct, frozen=True):
    """When a GPU was busy with a trainer's phases: at most during ``phases``, at least during ``behind``.

    ``start`` and ``end`` are those of all steps on the host, ``counts`` those that are timed and steady.
    """

    spans: pl.DataFrame
    start: Integers
    end: Integers
    counts: Flags
    phases: Intervals
    behind: Intervals


def find_timed_phases(evidence: Evidence, trainer: Trainer) -> TimedPhases | None:
    """Return the timed phases of a trainer; None if no steady step was timed on a GPU.

    A step counts if it and the one before it were timed: work of steps that were not timed would look idle.
    """
    steps = evidence.get(find_steps, trainer)
    spans = gpu_spans(evidence.timeline, trainer)
    if spans.is_empty():
        return None
    start, end = steps.table["start"].to_numpy(), steps.table["end"].to_numpy()
    launched = np.searchsorted(end, spans["begun"].to_numpy(), side="right")
    timed = np.zeros(end.size + 1, dtype=np.bool_)
    timed[launched] = True
    timed = timed[:-1] & steps.table["detailed"].to_numpy()
    counts = timed & np.append(False, timed[:-1]) & steps.table["steady"].to_numpy()
    if not counts.any():
        return None
    behind = [(spans["begun"], spans["start"]), (spans["ended"], spans["end"])]
    sure = union([(a.to_numpy(), b.to_numpy()) for a, b in behind])
    phases = union([sure, (spans["start"].to_numpy(), spans["end"].to_numpy())])
    return TimedPhases(spans, start, end, counts, phases, sure)


def find_gpu_work(evidence: Evidence, trainer: Trainer) -> GpuWork | None:
    """Return the GPU's work for a trainer; None if no steady step was timed on a GPU."""
    timed = evidence.get(find_timed_phases, trainer)
    if timed is None:
        return None
    start, end, counts = timed.start, timed.end, timed.counts
    most, least = (covered(busy, start[counts], end[counts]) for busy in (timed.phases, timed.behind))
    duration = (end - start)[counts]
    table = pl.DataFrame(
        {
            "index": np.flatnonzero(counts),
            "duration": duration,
            "busy_most_ns": most,
            "busy_least_ns": least,
            "idle_ns": duration - most,
        }
    )
    return GpuWork(
        table.join(_leads(timed.spans, end), on="index", how="left").cast(WORK_COLUMNS)  # type: ignore[arg-type]
    )


def gpu_spans(timeline: Timeline, trainer: Trainer) -> pl.DataFrame:
    """Return the GPU's phases of a trainer's process, with their ``end``, and ``begun`` and ``ended`` on the host."""
    streams = timeline.tracks.filter(pl.col("kind") == "stream", pl.col("parent") == trainer.process)["id"]
    spans = timeline.spans.filter(pl.col("operation") == "gpu", pl.col("track").is_in(streams.to_list()))
    end = pl.col("start") + pl.col("duration")
    value = spans["value"].to_numpy()
    return spans.with_columns(
        end.alias("end"),
        (pl.col("start") - pl.Series((value >> 8 & LEAD_MASK) * US)).alias("begun"),
        (end - pl.Series((value >> 8 + LEAD_BITS) * US)).alias("ended"),
    )


def _leads(spans: pl.DataFrame, end: Integers) -> pl.DataFrame:
    """Return, for each step that ended a phase, how far the GPU was behind at the last of them."""
    last = spans.sort("ended").with_columns(
        pl.Series("index", np.searchsorted(end, spans.sort("ended")["ended"].to_numpy(), side="left"))
    )
    lead = (pl.col("end") - pl.col("ended")).last().alias("lead_ns")
    return last.group_by("index").agg(lead).with_columns(pl.col("index").cast(pl.Int64))
