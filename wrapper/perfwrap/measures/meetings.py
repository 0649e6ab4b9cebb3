"""Where ranks meet: the same call on each of them, that none can leave before the last one has come.

A program's own collectives are matched by step, name, group and their place among those of the step: that they are
one meeting is then measured, by nobody having left it before the last one came. DDP's own exchange lies within the
backward pass, where no rank's arrival can be seen: there it is inferred from when each pass began and how long it took.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from perfwrap.measures.loop_events import thread_spans
from perfwrap.measures.spread_models import has_no_sync
from perfwrap.measures.trainers import Trainer

if TYPE_CHECKING:
    from perfwrap.measures.evidence import Evidence

COLLECTIVE = "collective"
BACKWARD = "backward"

NO_MEETING = (
    r"^(?:i?send|i?recv|send_object_list|recv_object_list|batch_isend_irecv|init_process_group|new_group)\b"
)
"""Calls that no group makes together, or that make the group."""
ENQUEUED = r" async\b"
"""Calls that return before anything was exchanged."""
OUTSIDE = "of others"
"""The name that the recorder gives a group which a rank is not in."""

KEY = ("step", "kind", "number")

CALLS = {
    "rank": pl.Int32,
    "step": pl.Int64,
    "kind": pl.String,
    "number": pl.UInt32,
    "arrived": pl.Int64,
    "left": pl.Int64,
}

MEETINGS = {
    **CALLS,
    "last": pl.Int32,
    "came_ns": pl.Int64,
    "wait_ns": pl.Int64,
    "measured": pl.Boolean,
}


@dataclass(frozen=True)
class Meetings:
    """What the ranks that work together did in each meeting.

    ``table`` has a row per meeting and rank: rank, step, kind (``all_reduce``, ``backward`` …), number (its place among
    those of its kind in the step), arrived, left, last (the rank that came last), came_ns (when), wait_ns (what this
    rank waited for it) and measured (false where it was inferred). ``unmatched`` counts calls that were no meeting:
    somebody had left before somebody else came, as the source of a broadcast does, or a call had no partner.
    """

    table: pl.DataFrame
    unmatched: int

    @property
    def measured(self) -> bool:
        """Whether every wait was measured."""
        return bool(self.table["measured"].all())

    def waits_of(self, rank: int) -> pl.DataFrame:
        """Return start, end and the rank waited for, of each wait of a rank, in order and without overlap.

        Within a backward pass a wait is taken to lie at the end: where in it ranks wait is not known.
        """
        own = self.table.filter(pl.col("rank") == rank, pl.col("wait_ns") > 0, pl.col("last") != rank)
        start = pl.when("measured").then("arrived").otherwise(pl.col("left") - pl.col("wait_ns"))
        return own.select(start.alias("start"), (start + pl.col("wait_ns")).alias("end"), "last").sort(
            "start"
        )


NONE = Meetings(pl.DataFrame(schema=MEETINGS), 0)


def find_meetings(evidence: Evidence) -> Meetings:
    """Return the meetings of the ranks that work together on one host; clocks of several are not sure enough."""
    ranks = evidence.together
    if len(ranks) < 2 or len({trainer.host for trainer in ranks}) > 1:
        return NONE
    calls = pl.concat([_calls(evidence, trainer) for trainer in ranks])
    backwards = [_backwards(evidence, trainer) for trainer in ranks]
    measured, lost = _measured(calls)
    found = [measured]
    if all(passes is not None for passes in backwards):
        inferred, more = _inferred(pl.concat([passes for passes in backwards if passes is not None]))
        found.append(inferred)
        lost += more
    return Meetings(pl.concat(found).select(list(MEETINGS)).sort("arrived", "rank"), lost)


def _calls(evidence: Evidence, trainer: Trainer) -> pl.DataFrame:
    """Return the program's own collectives in the steps that stand in detail."""
    spans = thread_spans(evidence.timeline, trainer).filter(
        pl.col("operation") == COLLECTIVE,
        ~pl.col("name").str.contains(NO_MEETING),
        ~pl.col("name").str.contains(ENQUEUED),
        ~pl.col("name").str.ends_with(OUTSIDE),
    )
    start = spans["start"].to_numpy()
    return _numbered(evidence, trainer, start, start + spans["duration"].to_numpy(), spans["name"].to_list())


def _backwards(evidence: Evidence, trainer: Trainer) -> pl.DataFrame | None:
    """Return the backward passes in which DDP exchanges gradients; None where it does not."""
    models = evidence.spread_models(trainer)
    if not any(model.kind == "DistributedDataParallel" and (model.world_size or 0) > 1 for model in models):
        return None
    events = evidence.steps(trainer).events.backward
    passes = _numbered(evidence, trainer, events.start, events.end, [BACKWARD] * len(events))
    # Inside of no_sync nothing is exchanged: of an accumulation only the last pass meets the others.
    return _last_of_each_step(passes) if has_no_sync(evidence.timeline, trainer) else passes


def _last_of_each_step(passes: pl.DataFrame) -> pl.DataFrame:
    last = passes.filter(pl.col("arrived") == pl.col("arrived").max().over("step"))
    return last.with_columns(pl.lit(0, pl.UInt32).alias("number"))


def _numbered(
    evidence: Evidence, trainer: Trainer, start: np.ndarray, end: np.ndarray, kinds: list[str]
) -> pl.DataFrame:
    """Return calls with the steady step that they lie in, and their place among those of their kind there."""
    steps = evidence.steps(trainer).table
    rows = pl.DataFrame(
        {
            "rank": np.full(start.size, -1 if trainer.rank is None else trainer.rank),
            "step": np.searchsorted(steps["end"].to_numpy(), start, side="right"),
            "kind": kinds,
            "number": np.zeros(start.size, dtype=np.uint32),
            "arrived": start,
            "left": end,
        },
        schema=CALLS,
    )
    known = steps.filter("steady", "detailed")["index"]
    number = pl.col("arrived").rank("ordinal").over("step", "kind").cast(pl.UInt32) - 1
    return rows.filter(pl.col("step").is_in(known.implode())).with_columns(number.alias("number"))


def _together(calls: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return the calls that all ranks of their kind made and none left before the last came, and how many others."""
    # Who is ever in a group's calls is in the group: the steps in which one of them made none do not match.
    members = calls.group_by("kind").agg(pl.col("rank").n_unique().alias("members"))
    latest = pl.col("arrived").arg_max()
    groups = (
        calls.group_by(KEY)
        .agg(
            pl.len().alias("came"),
            pl.col("arrived").max().alias("came_ns"),
            pl.col("left").min().alias("first_left"),
            pl.col("rank").get(latest).alias("last"),
            (pl.col("left") - pl.col("arrived")).get(latest).alias("took_last"),
        )
        .join(members, on="kind")
        .filter(
            pl.col("members") > 1,
            pl.col("came") == pl.col("members"),
            pl.col("first_left") >= pl.col("came_ns"),
        )
    )
    met = calls.join(groups, on=KEY)
    return met, calls.height - met.height


def _measured(calls: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return the meetings in the program's own collectives: who came early waited until the last one came."""
    met, lost = _together(calls)
    wait = (pl.col("came_ns") - pl.col("arrived")).alias("wait_ns")
    return met.with_columns(wait, pl.lit(True).alias("measured")).select(list(MEETINGS)), lost


def _inferred(passes: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return the meetings in backward passes.

    A rank that begins its pass earlier than the last one has waited so much longer as its pass took longer than the
    last one's, but never longer than it came earlier. What makes a pass itself slow on one rank does not show: all
    leave it together.
    """
    met, lost = _together(passes)
    took = pl.col("left") - pl.col("arrived")
    early = pl.col("came_ns") - pl.col("arrived")
    wait = pl.min_horizontal(early, took - pl.col("took_last")).clip(0).alias("wait_ns")
    return met.with_columns(wait, pl.lit(False).alias("measured")).select(list(MEETINGS)), lost
