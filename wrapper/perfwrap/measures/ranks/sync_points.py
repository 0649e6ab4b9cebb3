"""Synchronization points of ranks: the same call on each of them, which none can leave before the last has arrived.

A program's own collectives are matched by step, name, group and their position in the step: whether they are one
synchronization point is then measured, because none leaves before the last arrives. DDP's own exchange is inside the
backward pass, where arrivals cannot be recorded: there it is inferred from the start and the length of each pass.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.loop_events import thread_spans
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.concurrent_loops import find_ranks_together
from perfwrap.measures.ranks.spread_models import find_spread_models, has_no_sync
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer

COLLECTIVE = "collective"
BACKWARD = "backward"

NO_SYNC_POINT = (
    r"^(?:i?send|i?recv|send_object_list|recv_object_list|batch_isend_irecv|init_process_group|new_group)\b"
)
"""Calls that a group does not make together, or that create the group."""
ENQUEUED = r" async\b"
"""Calls that return before anything is exchanged."""
OUTSIDE = "of others"
"""The recorder's name of a group that a rank is not in."""

KEY = ("step", "kind", "number")

CALLS = {
    "rank": pl.Int32,
    "step": pl.Int64,
    "kind": pl.String,
    "number": pl.UInt32,
    "arrived": pl.Int64,
    "left": pl.Int64,
}

SYNC_POINTS = {
    **CALLS,
    "last": pl.Int32,
    "came_ns": pl.Int64,
    "wait_ns": pl.Int64,
    "measured": pl.Boolean,
}


class SyncPoints(Struct, frozen=True):
    """The synchronization points of the ranks that work together.

    ``table`` has a row per synchronization point and rank: rank, step, kind (``all_reduce``, ``backward`` …), number
    (its position among those of its kind in the step), arrived, left, last (the rank that arrived last), came_ns
    (when), wait_ns (how long this rank waited for it) and measured (false if inferred). ``unmatched`` counts calls that
    were not a synchronization point: one rank had left before another arrived, as the source of a broadcast does, or a
    call had no partner.
    """

    table: pl.DataFrame
    unmatched: int

    @property
    def measured(self) -> bool:
        """Whether every wait was measured."""
        return bool(self.table["measured"].all())

    def waits_of(self, rank: int) -> pl.DataFrame:
        """Return start, end and the awaited rank of each wait of a rank, in order and without overlap.

        Within a backward pass a wait is placed at the end, because its true position is unknown.
        """
        own = self.table.filter(pl.col("rank") == rank, pl.col("wait_ns") > 0, pl.col("last") != rank)
        start = pl.when("measured").then("arrived").otherwise(pl.col("left") - pl.col("wait_ns"))
        return own.select(start.alias("start"), (start + pl.col("wait_ns")).alias("end"), "last").sort(
            "start"
        )


NONE = SyncPoints(pl.DataFrame(schema=SYNC_POINTS), 0)


def find_waits(evidence: Evidence, trainer: Trainer) -> pl.DataFrame:
    """Return when a rank waited for another one, and for which, if known: start, end, last."""
    rank = trainer.rank if trainer in evidence.get(find_ranks_together) else None
    return evidence.get(find_sync_points).waits_of(-1 if rank is None else rank)


def find_sync_points(evidence: Evidence) -> SyncPoints:
    """Return the synchronization points of the ranks on one host; clocks of several hosts are too inaccurate."""
    ranks = evidence.get(find_ranks_together)
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
    return SyncPoints(pl.concat(found).select(list(SYNC_POINTS)).sort("arrived", "rank"), lost)


def _calls(evidence: Evidence, trainer: Trainer) -> pl.DataFrame:
    """Return the program's own collectives in the detailed steps."""
    spans = thread_spans(evidence.timeline, trainer).filter(
        pl.col("operation") == COLLECTIVE,
        ~pl.col("name").str.contains(NO_SYNC_POINT),
        ~pl.col("name").str.contains(ENQUEUED),
        ~pl.col("name").str.ends_with(OUTSIDE),
    )
    start = spans["start"].to_numpy()
    return _numbered(evidence, trainer, start, start + spans["duration"].to_numpy(), spans["name"].to_list())


def _backwards(evidence: Evidence, trainer: Trainer) -> pl.DataFrame | None:
    """Return the backward passes in which DDP exchanges gradients; None if it does not."""
    models = evidence.get(find_spread_models, trainer)
    if not any(model.kind == "DistributedDataParallel" and (model.world_size or 0) > 1 for model in models):
        return None
    events = evidence.get(find_steps, trainer).events.backward
    passes = _numbered(evidence, trainer, events.start, events.end, [BACKWARD] * len(events))
    # Inside no_sync nothing is exchanged: in an accumulation only the last pass synchronizes.
    return _last_of_each_step(passes) if has_no_sync(evidence.timeline, trainer) else passes


def _last_of_each_step(passes: pl.DataFrame) -> pl.DataFrame:
    last = passes.filter(pl.col("arrived") == pl.col("arrived").max().over("step"))
    return last.with_columns(pl.lit(0, pl.UInt32).alias("number"))


def _numbered(
    evidence: Evidence, trainer: Trainer, start: np.ndarray, end: np.ndarray, kinds: list[str]
) -> pl.DataFrame:
    """Return calls with their steady step, and their position among the calls of their kind in it."""
    steps = evidence.get(find_steps, trainer).table
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


def _matched(calls: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return the calls that all their ranks made and none left before the last arrived; count the others."""
    # A rank with any call of a group is in the group: steps in which one of them made no call do not match.
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
    """Return the synchronization points in the program's own collectives: early ranks waited for the last one."""
    met, lost = _matched(calls)
    wait = (pl.col("came_ns") - pl.col("arrived")).alias("wait_ns")
    return met.with_columns(wait, pl.lit(True).alias("measured")).select(list(SYNC_POINTS)), lost


def _inferred(passes: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return the synchronization points in backward passes.

    A rank that starts its pass before the last one waited for as long as its pass was longer than the last one's, but
    not longer than it was early. A pass that is slow by itself on one rank is not detected: all ranks leave it
    together.
    """
    met, lost = _matched(passes)
    took = pl.col("left") - pl.col("arrived")
    early = pl.col("came_ns") - pl.col("arrived")
    wait = pl.min_horizontal(early, took - pl.col("took_last")).clip(0).alias("wait_ns")
    return met.with_columns(wait, pl.lit(False).alias("measured")).select(list(SYNC_POINTS)), lost
