"""How long collectives run without overlap between the end of a backward pass and the optimizer's first kernel."""

from __future__ import annotations

import polars as pl

from perfwrap.measures.account.intervals import covered
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import GpuActivity
from perfwrap.measures.trainers import Trainer

STEPPED = ("optimizer", "scaler_step")


def exchange_gap_ns(evidence: Evidence, gpu: GpuActivity, trainer: Trainer) -> int | None:
    """Return that time, summed over all steps; None if no step has both a backward pass and an optimizer step.

    Kernels belong to the pass during which they were launched, by the host's clock; their times are the GPU's.
    """
    spans = evidence.timeline.spans.filter(pl.col("track") == trainer.thread)
    end = (pl.col("start") + pl.col("duration")).alias("end")
    kernels = gpu.events.table.filter(
        pl.col("category") == "kernel", ~pl.col("nccl"), pl.col("launched").is_not_null()
    )
    backward = spans.filter(pl.col("operation") == "backward").select("start", end).sort("start")
    optimizer = spans.filter(pl.col("operation").is_in(STEPPED)).select("start", end).sort("start")
    last = _in_phase(kernels, backward).group_by("phase").agg(pl.col("end").max().alias("done"))
    first = _in_phase(kernels, optimizer).group_by("phase").agg(pl.col("start").min().alias("begun"))
    pairs = last.sort("phase").join_asof(first.sort("phase"), on="phase", strategy="forward").drop_nulls()
    # Several backward passes of one step lead to one optimizer step: the last of them counts.
    pairs = pairs.unique("begun", keep="last", maintain_order=True).filter(pl.col("begun") > pl.col("done"))
    if last.is_empty() or first.is_empty():
        return None
    alone = covered(gpu.exposed_collectives, pairs["done"].to_numpy(), pairs["begun"].to_numpy())
    return int(alone.sum())


def _in_phase(kernels: pl.DataFrame, phases: pl.DataFrame) -> pl.DataFrame:
    """Return start and end of the kernels launched in phases, with ``phase``: the start of that phase on the host."""
    known = phases.select(pl.col("start").alias("phase"), pl.col("end").alias("until"))
    joined = kernels.sort("launched").join_asof(
        known, left_on="launched", right_on="phase", strategy="backward"
    )
    return joined.filter(pl.col("launched") < pl.col("until")).select("phase", "start", "end")
