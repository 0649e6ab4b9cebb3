"""Whether one rank makes the others wait, step by step, and in which part of its own work."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.concurrent_loops import find_ranks_together
from perfwrap.measures.ranks.spread_models import find_spread_models
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer

WAITING_PARTS = ("backward", "sync", "validation", "perfwrap")
"""Parts in which a rank may wait for another one: gradients are exchanged in the backward pass, and reading a value
from a GPU waits for enqueued work."""
WAITING_OPERATION = "collective"
MIN_STEPS = 20
"""Steps recorded in detail on all ranks that a comparison needs."""
LENGTH = pl.col("end") - pl.col("start")


class Straggler(Struct, frozen=True):
    """The rank with the most work of its own; times are means over the steps that all ranks have in detail."""

    trainer: Trainer
    steps: int
    slowest_share: float
    """Share of the steps in which it was the slowest."""
    excess_ns: float
    """Mean extra time of its own work over that of the slowest other rank, over all steps."""
    error_ns: float
    """The standard error of that mean."""
    typical_ns: float
    """The median over the steps: a few steps in which the machine stopped do not affect it."""
    step_ns: float
    parts: dict[str, float]
    """For each part the extra time over the median of the others, largest first."""


def find_straggler(evidence: Evidence) -> Straggler | None:
    """Return the rank that is slowest on average; None if fewer than two ranks can be compared."""
    ranks = list(evidence.get(find_ranks_together))
    if len(ranks) < 2:
        return None
    skipped = _waiting_parts(evidence, ranks)
    tables = [_own_parts(evidence, trainer, place, skipped) for place, trainer in enumerate(ranks)]
    parts = pl.concat(tables)
    whole = parts.group_by("step", "rank").agg(pl.col("ns").sum())
    common = whole.group_by("step").len().filter(pl.col("len") == len(ranks))["step"]
    whole = whole.filter(pl.col("step").is_in(common.implode()))
    if common.len() < MIN_STEPS:
        return None
    slowest = whole.sort("step", "ns").group_by("step", maintain_order=True).last()
    means = whole.group_by("rank").agg(pl.col("ns").mean()).sort("ns", "rank")
    rank = int(means["rank"][-1])
    others = whole.filter(pl.col("rank") != rank).group_by("step").agg(pl.col("ns").max().alias("other"))
    excess = whole.filter(pl.col("rank") == rank).join(others, on="step")
    more = excess["ns"] - excess["other"]
    return Straggler(
        trainer=ranks[rank],
        steps=common.len(),
        slowest_share=slowest.filter(pl.col("rank") == rank).height / common.len(),
        excess_ns=max(0.0, float(more.mean() or 0.0)),
        error_ns=float(more.std() or 0.0) / common.len() ** 0.5,
        typical_ns=float(more.median() or 0.0),
        step_ns=_step_ns(evidence, ranks[rank], common),
        parts=_more(parts.filter(pl.col("step").is_in(common.implode())), rank, common.len()),
    )


def _waiting_parts(evidence: Evidence, ranks: list[Trainer]) -> tuple[str, ...]:
    """Return the parts that do not show a rank's own work."""
    sends = any(
        model.broadcast_buffers and model.buffers
        for trainer in ranks
        for model in evidence.get(find_spread_models, trainer)
    )
    sharded = any(
        model.kind in ("FullyShardedDataParallel", "fully_shard")
        for trainer in ranks
        for model in evidence.get(find_spread_models, trainer)
    )
    # Both wait for other ranks during the forward pass.
    return (*WAITING_PARTS, "forward") if sends or sharded else WAITING_PARTS


def _own_parts(evidence: Evidence, trainer: Trainer, rank: int, skipped: tuple[str, ...]) -> pl.DataFrame:
    """Return the time of each part of a rank's own work in each steady step that was recorded in detail."""
    steps = evidence.get(find_steps, trainer).table.filter("steady", "detailed")["index"]
    own = evidence.get(find_account, trainer).segments.filter(
        ~pl.col("estimated"),
        pl.col("step").is_in(steps.implode()),
        ~pl.col("part").is_in(skipped),
        (pl.col("operation") != WAITING_OPERATION).fill_null(True),
        pl.col("waits_for").is_null(),
    )
    return (
        own.group_by("step", pl.col("part").cast(pl.String))
        .agg(pl.lit(rank).alias("rank"), LENGTH.sum().alias("ns"))
        .select("step", "part", "rank", "ns")
    )


def _step_ns(evidence: Evidence, trainer: Trainer, common: pl.Series) -> float:
    """Return the mean length of the compared steps."""
    table = evidence.get(find_steps, trainer).table.filter(pl.col("index").is_in(common.implode()))
    return float(table["duration"].mean() or 0.0)  # type: ignore[arg-type]


def _more(parts: pl.DataFrame, rank: int, steps: int) -> dict[str, float]:
    """Return the extra time of a rank over the median of the others, by part."""
    means = parts.group_by("rank", "part").agg((pl.col("ns").sum() / steps).alias("ns"))
    names = means["part"].unique().to_list()
    others = sorted(set(means["rank"].to_list()) - {rank})

    def mean(which: int, part: str) -> float:
        found = means.filter(pl.col("rank") == which, pl.col("part") == part)["ns"]
        return float(found[0]) if found.len() else 0.0

    found = {
        part: mean(rank, part) - float(pl.Series([mean(other, part) for other in others]).median() or 0.0)  # type: ignore[arg-type]
        for part in names
    }
    return dict(sorted(found.items(), key=lambda item: -item[1]))
