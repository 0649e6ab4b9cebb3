"""Why a GPU was idle between the phases of steps, from the events around the phases alone: no kernel was recorded.

The events mark when the GPU began and ended a forward pass, a backward pass and an optimizer step. Between them it had
nothing of these to do, and the cause is what the training thread did at that moment. This costs the program nothing
more than the events, so it covers all detailed steps of a run. It does not show gaps between the kernels of a phase:
those count as busy, and only a record of kernels tells them.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.intervals import Intervals, contain, distinct, length, union, without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_work import find_timed_phases
from perfwrap.measures.trainers import Trainer

DISPATCH = ("forward", "backward", "recompute", "optimizer")
"""Parts of the account in which the framework launches work."""
BLOCKING = ("sync", "transfer")
"""Parts in which the host may have waited until the GPU had nothing left to do."""
AFTERMATH = ("dispatch", "python")
"""Causes that are part of a wait if the GPU became idle in it: the host fills the queue again."""


class PhaseIdle(Struct, frozen=True):
    """The idle time of a trainer's GPU between timed phases, during ``steps`` steps that took ``duration_ns`` in all.

    ``idle_ns`` maps causes, words of ``idle_blame.BLAMES``, to nanoseconds, longest first. ``busy_ns`` is the rest: at
    most so long was the GPU busy.
    """

    steps: int
    duration_ns: int
    busy_ns: int
    idle_ns: dict[str, int]

    @property
    def shares(self) -> dict[str, float]:
        """Each cause as a share of the steps' time."""
        return {cause: ns / self.duration_ns for cause, ns in self.idle_ns.items()}


def find_phase_idle(evidence: Evidence, trainer: Trainer) -> PhaseIdle | None:
    """Return the idle time between a trainer's timed phases; None if no steady step was timed on a GPU."""
    timed = evidence.get(find_timed_phases, trainer)
    if timed is None:
        return None
    steps = union([(timed.start[timed.counts], timed.end[timed.counts])])
    gaps = without(steps, timed.phases)
    # A wait of the step before may have emptied the queue: whole gaps are looked at, and counted within the steps.
    whole = without(union([(timed.start[:1], timed.end[-1:])]), timed.phases)
    segments = evidence.get(find_account, trainer).segments
    parts = {
        str(part): union([(rows["start"].to_numpy(), rows["end"].to_numpy())])
        for (part,), rows in segments.group_by("part")
    }
    pieces = _pieces(gaps, whole, parts)
    sums = pieces.group_by("cause").agg((pl.col("end") - pl.col("start")).sum().alias("ns"))
    rows = sums.sort("ns", "cause", descending=[True, False])
    total = length(steps)
    return PhaseIdle(
        steps=int(timed.counts.sum()),
        duration_ns=total,
        busy_ns=total - length(gaps),
        idle_ns=dict(zip(rows["cause"].to_list(), rows["ns"].to_list(), strict=True)),
    )


def _pieces(gaps: Intervals, whole: Intervals, parts: dict[str, Intervals]) -> pl.DataFrame:
    """Return start, end and cause of pieces that tile the gaps; ``whole`` are the gaps without limits."""
    edges = distinct(np.concatenate([*gaps, *(edge for found in parts.values() for edge in found)]))
    moments, until = edges[:-1], edges[1:]
    inside = contain(gaps, moments)
    moments, until = moments[inside], until[inside]
    cause = np.full(moments.size, "unknown", dtype=object)
    for part, found in parts.items():
        word = "dispatch" if part in DISPATCH else "profiler" if part == "perfwrap" else part
        cause[contain(found, moments)] = word
    blocked = union([parts[part] for part in BLOCKING if part in parts])
    dry_in_wait = contain(blocked, whole[0])[np.searchsorted(whole[0], moments, side="right") - 1]
    cause[dry_in_wait & np.isin(cause.astype(str), AFTERMATH)] = "sync"
    return pl.DataFrame({"start": moments, "end": until, "cause": pl.Series(cause.tolist(), dtype=pl.String)})
