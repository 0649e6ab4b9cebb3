"""How far ranks come apart: who comes last to where they meet, how often, and what the others wait for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from perfwrap.measures.meetings import Meetings
from perfwrap.measures.trainers import Trainer

if TYPE_CHECKING:
    from perfwrap.measures.evidence import Evidence

SAME_RANK = 0.6
"""Share of the waiting for one rank from which it is always the same one; between ranks that take turns none has it.
Tools that time the buckets of an exchange call a rank late from this share on."""


@dataclass(frozen=True)
class RankSkew:
    """One rank at the meetings; times are means per step over the steps whose meetings are known."""

    trainer: Trainer
    meetings: int
    last: int
    """In how many of them it came last."""
    wait_ns: float
    """What it waited for others."""
    caused_ns: float
    """What the others, on average, waited for it."""


@dataclass(frozen=True)
class Skew:
    """All ranks at their meetings, which lie in ``steps`` steps of ``step_ns`` each on average."""

    ranks: tuple[RankSkew, ...]
    steps: int
    step_ns: float
    meetings: int
    measured: bool
    """Whether every wait was measured; else some were inferred from how long backward passes took."""

    @property
    def waiting_share(self) -> float:
        """What of a step a rank waits for others, on average."""
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
        """Whether ranks wait for one of them, instead of for each other in turn."""
        return self.latest_share >= SAME_RANK

    def of(self, trainer: Trainer) -> RankSkew | None:
        """Return one rank's figures."""
        return next((rank for rank in self.ranks if rank.trainer == trainer), None)


def find_skew(evidence: Evidence) -> Skew | None:
    """Return how the ranks that work together meet; None where no meeting of theirs is known."""
    meetings: Meetings = evidence.meetings
    table = meetings.table
    if table.is_empty():
        return None
    steps = table["step"].n_unique()
    met = table.unique(("step", "kind", "number"), maintain_order=True)
    lengths = evidence.steps(evidence.together[0]).table.filter(
        pl.col("index").is_in(table["step"].unique().implode())
    )
    others = max(1, len(evidence.together) - 1)
    return Skew(
        ranks=tuple(
            RankSkew(
                trainer=trainer,
                meetings=table.filter(pl.col("rank") == trainer.rank).height,
                last=met.filter(pl.col("last") == trainer.rank).height,
                wait_ns=_sum(table, pl.col("rank") == trainer.rank) / steps,
                caused_ns=_sum(table, pl.col("last") == trainer.rank) / steps / others,
            )
            for trainer in evidence.together
        ),
        steps=steps,
        step_ns=float(lengths["duration"].mean() or 0.0),  # type: ignore[arg-type]
        meetings=met.height,
        measured=meetings.measured,
    )


def _sum(table: pl.DataFrame, which: pl.Expr) -> int:
    """Return the waiting in some rows."""
    return int(table.filter(which)["wait_ns"].sum())
