"""The data for an overview chart of a run besides the timeline: steps, parts and claims by step, GPU states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import GpuActivity, gpu_of
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.steps.slow_steps import SlowSteps, find_slow_steps
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer, find_trainers
from perfwrap.timeline.model import Timeline

LENGTH = pl.col("end") - pl.col("start")
STATE_COLUMNS = {"start": pl.Int64, "end": pl.Int64, "state": pl.String}
BUSY = "busy"


class TrainerOverview(Struct, frozen=True):
    """One training thread: its table of steps (``measures.steps.STEP_COLUMNS``) and the parts of each steady step.

    ``parts`` has the columns step (the index in the table), part and ns; ``waits`` has step and ns: the time of the
    parts that waited for other ranks.
    """

    trainer: Trainer
    steps: pl.DataFrame
    parts: pl.DataFrame
    slow: SlowSteps | None
    waits: pl.DataFrame


class Overview(Struct, frozen=True):
    """One run: ``main`` is the index in ``trainers`` of the main one, None if there is none.

    ``claims`` has, for each finding in order, the columns step and ns of the trainer with the index in ``claimants``:
    the time of the step that the finding explains. ``gpu_states`` (STATE_COLUMNS, of the GPU of the main trainer) is
    ``busy`` or the cause of an idle moment; nothing was recorded outside its rows.
    """

    trainers: tuple[TrainerOverview, ...]
    main: int | None
    claims: tuple[pl.DataFrame, ...]
    claimants: tuple[int, ...]
    gpu_states: pl.DataFrame


def find_overview(evidence: Evidence, claims: Sequence[tuple[pl.Expr | None, tuple[int, ...]]]) -> Overview:
    """Return the overview of a run; ``claims`` are each finding's and the ranks that it was seen on."""
    trainers = evidence.get(find_trainers)
    stands_for_all = evidence.get(find_main_trainer)
    main = None if stands_for_all is None else trainers.index(stands_for_all)
    found = tuple(_trainer(evidence, trainer) for trainer in trainers)
    claimants = tuple(_claimant(trainers, main, ranks) for _, ranks in claims)
    columns: list[pl.DataFrame] = [pl.DataFrame(schema={"step": pl.Int64, "ns": pl.Int64})] * len(claims)
    for place, trainer in enumerate(trainers):
        mine = [number for number, claimant in enumerate(claimants) if claimant == place]
        claimed = claimed_steps(evidence.get(find_account, trainer), [claims[number][0] for number in mine])
        for number, frame in zip(mine, claimed, strict=True):
            columns[number] = frame
    return Overview(found, main, tuple(columns), claimants, _gpu_states(evidence))


def claimed_steps(account: Account, claims: Sequence[pl.Expr | None]) -> list[pl.DataFrame]:
    """Return step and ns of each claim, in order; each time belongs to the first claim only."""
    segments = account.segments
    free = pl.repeat(True, segments.height, dtype=pl.Boolean, eager=True)
    found = []
    for claim in claims:
        condition = pl.lit(False) if claim is None else claim.fill_null(False)
        taken = segments.with_columns(condition.alias("taken"))["taken"] & free
        free = free & ~taken
        rows = segments.filter(taken, pl.col("step").is_not_null())
        found.append(rows.group_by("step").agg(LENGTH.sum().alias("ns")).sort("step"))
    return found


def _trainer(evidence: Evidence, trainer: Trainer) -> TrainerOverview:
    """Return one trainer's overview."""
    segments = evidence.get(find_account, trainer).segments.drop_nulls("step")
    parts = segments.group_by("step", "part").agg(LENGTH.sum().alias("ns")).sort("step", "part")
    waiting = segments.filter(pl.col("waits_for").is_not_null())
    waits = waiting.group_by("step").agg(LENGTH.sum().alias("ns")).sort("step")
    table, slow = evidence.get(find_steps, trainer).table, evidence.get(find_slow_steps, trainer)
    return TrainerOverview(trainer, table, parts, slow, waits)


def _claimant(trainers: tuple[Trainer, ...], main: int | None, ranks: tuple[int, ...]) -> int:
    """Return the index of the trainer whose steps show a finding: the main one if the finding is there."""
    if main is not None and (not ranks or trainers[main].rank in ranks):
        return main
    return next((place for place, trainer in enumerate(trainers) if trainer.rank in ranks), main or 0)


def _gpu_states(evidence: Evidence) -> pl.DataFrame:
    """Return what the main trainer's GPU was doing, from its kernels, else from the events around the phases."""
    main = evidence.get(find_main_trainer)
    if main is None:
        return pl.DataFrame(schema=STATE_COLUMNS)
    gpu = evidence.get(gpu_of, main)
    if gpu is not None and not gpu.events.clock_is_off:
        return _kernel_states(gpu)
    return _phase_states(evidence.timeline, main)


def _kernel_states(gpu: GpuActivity) -> pl.DataFrame:
    """Return busy and idle times of the windows in which kernels were recorded."""
    start, end = gpu.events.intervals()
    busy = pl.DataFrame({"start": start, "end": end}, schema_overrides={"start": pl.Int64, "end": pl.Int64})
    idle = gpu.idle.select("start", "end", pl.col("blame").cast(pl.String).alias("state"))
    return pl.concat([busy.with_columns(pl.lit(BUSY).alias("state")), idle]).sort("start")


def _phase_states(timeline: Timeline, trainer: Trainer) -> pl.DataFrame:
    """Return the times in which a phase of the program ran on the GPU, and those between them."""
    streams = timeline.tracks.filter(pl.col("kind") == "stream", pl.col("parent") == trainer.process)
    rows = timeline.spans.filter(
        pl.col("operation") == "gpu", pl.col("track").is_in(streams["id"].to_list())
    ).select("start", (pl.col("start") + pl.col("duration")).alias("end"))
    if rows.is_empty():
        return pl.DataFrame(schema=STATE_COLUMNS)
    reached = np.maximum.accumulate(rows["end"].to_numpy())
    start = np.maximum(rows["start"].to_numpy(), np.append(0, reached[:-1]))
    busy = pl.DataFrame({"start": start, "end": reached, "state": [BUSY] * start.size}, schema=STATE_COLUMNS)
    idle = pl.DataFrame(
        {"start": reached[:-1], "end": start[1:], "state": ["no phase on the GPU"] * (start.size - 1)},
        schema=STATE_COLUMNS,
    )
    return pl.concat([busy, idle]).filter(pl.col("end") > pl.col("start")).sort("start")
