"""Delays between ranks: which is last at synchronization points, how often, and how long the others wait for it."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.concurrent_loops import find_ranks_together
from perfwrap.measures.ranks.sync_points import SyncPoints, find_sync_points
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer

SAME_RANK = 0.6
"""Share of the waiting for one rank from which it is always the same one; no rank has it if different ranks are late.
Tools that time the buckets of an exchange call a rank late from this share."""


class RankSkew(Struct, frozen=True):
    """One rank at the synchronization points; times are means per step over the steps with known ones."""

    trainer: Trainer
    sync_points: int
    last: int
    """At how many of them it was last."""
    wait_ns: float
    """How long it waited for others."""
    caused_ns: float
    """How long the others waited for it on average."""


class Skew(Struct, frozen=True):
    """All ranks at their synchronization points, in ``steps`` steps with a mean of ``step_ns``."""

    ranks: tuple[RankSkew, ...]
    steps: int
    step_ns: float
    sync_points: int
    measured: bool
    """Whether every wait was measured; otherwise some were inferred from the length of backward passes."""

    @property
    def waiting_share(self) -> float:
        """The mean share of a step in which a rank waits for others."""
        mean = sum(rank.wait_ns for rank in self.ranks) / len(self.ranks)
        return mean / self.step_ns if self.step_ns else 0.0

    @property
    def latest(self) -> RankSkew:
        """The rank that the others wait for most."""
        return max(self.ranks, key=lambda rank: rank.caused_ns)

    @property
    def latest_share(self) -> float:
        """The share of all waiting that is for that rank."""
        whole = sum(rank.caused_ns for rank in self.ranks)
        return self.latest.caused_ns / whole if whole else 0.0

    @property
    def always_the_same(self) -> bool:
        """Whether ranks wait for one of them, not for different ones."""
        return self.latest_share >= SAME_RANK

    def of(self, trainer: Trainer) -> RankSkew | None:
        """Return one rank's figures."""
        return next((rank for rank in self.ranks if rank.trainer == trainer), None)


def find_skew(evidence: Evidence) -> Skew | None:
    """Return the delays of the ranks that work together; None if none of their synchronization points is known."""
    sync_points: SyncPoints = evidence.get(find_sync_points)
    table = sync_points.table
    if table.is_empty():
        return None
    steps = table["step"].n_unique()
    met = table.unique(("step", "kind", "number"), maintain_order=True)
    lengths = evidence.get(find_steps, evidence.get(find_ranks_together)[0]).table.filter(
        pl.col("index").is_in(table["step"].unique().implode())
    )
    others = max(1, len(evidence.get(find_ranks_together)) - 1)
    return Skew(
        ranks=tuple(
            RankSkew(
                trainer=trainer,
                sync_points=table.filter(pl.col("rank") == trainer.rank).height,
                last=met.filter(pl.col("last") == trainer.rank).height,
                wait_ns=_sum(table, pl.col("rank") == trainer.rank) / steps,
                caused_ns=_sum(table, pl.col("last") == trainer.rank) / steps / others,
            )
            for trainer in evidence.get(find_ranks_together)
        ),
        steps=steps,
        step_ns=float(lengths["duration"].mean() or 0.0),  # type: ignore[arg-type]
        sync_points=met.height,
        measured=sync_points.measured,
    )


def _sum(table: pl.DataFrame, which: pl.Expr) -> int:
    """Return the total waiting in some rows."""
    return int(table.filter(which)["wait_ns"].sum())
