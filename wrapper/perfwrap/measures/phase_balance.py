"""How long forward and backward passes take beside each other."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from perfwrap.measures.account import Account
from perfwrap.measures.gpu_work import gpu_spans
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline


@dataclass(frozen=True)
class PhaseBalance:
    """Time of all forward and all backward passes of the steady loop; ``on_gpu`` says whose clock it is."""

    forward_ns: int
    backward_ns: int
    on_gpu: bool

    @property
    def ratio(self) -> float:
        """Backward over forward; two is what the same layers take."""
        return self.backward_ns / self.forward_ns


def find_phase_balance(
    timeline: Timeline, trainer: Trainer, account: Account, trains_on_gpu: bool
) -> PhaseBalance | None:
    """Return the balance; None where one of both is not there, or a GPU's time for them was not measured.

    On a GPU the host's account only says how long launching took.
    """
    if not trains_on_gpu:
        forward, backward = account.ns["forward"], account.ns["backward"]
        return PhaseBalance(forward, backward, False) if forward and backward else None
    spans = gpu_spans(timeline, trainer).filter(pl.col("start").is_between(account.start, account.end))
    told = dict(spans.group_by("name").agg(pl.col("duration").sum()).iter_rows())
    forward, backward = int(told.get("forward", 0)), int(told.get("backward", 0))
    return PhaseBalance(forward, backward, True) if forward and backward else None
