"""The steps of one training thread as a table for other programs; docs/run-folder.md explains its columns."""

from __future__ import annotations

import numpy as np
import polars as pl

from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.parts import PARTS
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.exchanges import find_exchanges
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.clocks import HostClock
from perfwrap.timeline.step_tables import COLUMNS, Summary

WAITING = ("backward", "sync", "validation", "perfwrap")
"""Parts in which a rank may wait for another one, such as the gradient exchange of a backward pass."""
COLLECTIVE = "collective"
LENGTH = pl.col("end") - pl.col("start")


def step_table(evidence: Evidence, trainer: Trainer) -> pl.DataFrame:
    """Return a row for each step, with the columns of COLUMNS; null for unknown values."""
    steps = evidence.get(find_steps, trainer)
    exchanges = find_exchanges(evidence, trainer).rename({"begin": "came", "end": "left"})
    table = steps.table.join(_parts(evidence, trainer), left_on="index", right_on="step", how="left")
    table = table.join(exchanges, left_on="index", right_on="step", how="left")
    columns = table.select(
        pl.lit(trainer.host).alias("host"),
        pl.lit(trainer.rank).alias("rank"),
        pl.lit(trainer.pid).alias("pid"),
        pl.col("index").alias("step"),
        pl.Series(_wall_times(evidence, steps.table["start"])).alias("start_ns"),
        pl.col("duration").alias("duration_ns"),
        "steady",
        "detailed",
        "windowed",
        "epoch",
        "samples",
        *(f"{part}_ns" for part in PARTS),
        "own_ns",
        (pl.col("came") - pl.col("start")).alias("exchange_begin_ns"),
        (pl.col("left") - pl.col("start")).alias("exchange_end_ns"),
    )
    return columns.select(pl.col(name).cast(kind) for name, kind in COLUMNS.items())


def summary(evidence: Evidence, trainer: Trainer) -> Summary:
    """Return the facts about a trainer as a whole; its account is exact also if steps have no detail."""
    steps = evidence.get(find_steps, trainer)
    return Summary(
        trainer.name,
        trainer.rank,
        trainer.host,
        trainer.pid,
        steps.count,
        steps.steady,
        steps.median_ns,
        steps.p99_ns,
        steps.samples_per_s,
        steps.anchor,
        dict(evidence.get(find_account, trainer).ns),
    )


def _parts(evidence: Evidence, trainer: Trainer) -> pl.DataFrame:
    """Return the time of each part, and of the rank's own work, in each steady, detailed step."""
    known = evidence.get(find_steps, trainer).table.filter("steady", "detailed")["index"]
    segments = evidence.get(find_account, trainer).segments.filter(pl.col("step").is_in(known.implode()))
    waits = pl.col("part").cast(pl.String).is_in(WAITING) | (pl.col("operation") == COLLECTIVE).fill_null(
        False
    )
    return segments.group_by("step").agg(
        *(LENGTH.filter(pl.col("part") == part).sum().alias(f"{part}_ns") for part in PARTS),
        LENGTH.filter(~waits).sum().alias("own_ns"),
    )


def _wall_times(evidence: Evidence, starts: pl.Series) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return times of the run's clock as wall clock times of the first host."""
    pairs = evidence.timeline.run.get("clock_pairs")
    times = starts.to_numpy()
    if not pairs:
        return times
    monotonic, wall = (np.array(column, dtype=np.int64) for column in pairs)
    return HostClock(monotonic, wall).to_wall(times)
