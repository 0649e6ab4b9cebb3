"""The time of forward and backward passes compared with each other."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.journal_format import SPANS
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import trains_on_gpu
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_work import gpu_spans
from perfwrap.measures.trainers import Trainer

KIND = 0xFF
"""The bits of a GPU span's value that hold the kind of the phase; its name is that of the module or the optimizer."""


class PhaseBalance(Struct, frozen=True):
    """Total time of all forward and all backward passes of the steady loop; ``on_gpu`` says whose clock it is."""

    forward_ns: int
    backward_ns: int
    on_gpu: bool

    @property
    def ratio(self) -> float:
        """Backward over forward; the same layers have two."""
        return self.backward_ns / self.forward_ns


def find_phase_balance(evidence: Evidence, trainer: Trainer) -> PhaseBalance | None:
    """Return the balance; None if one of them is missing, or if their time on a GPU was not measured.

    On a GPU the host's account only says how long launching took.
    """
    account = evidence.get(find_account, trainer)
    if not trains_on_gpu(evidence, trainer):
        forward, backward = account.ns["forward"], account.ns["backward"]
        return PhaseBalance(forward, backward, False) if forward and backward else None
    spans = gpu_spans(evidence.timeline, trainer).filter(
        pl.col("start").is_between(account.start, account.end)
    )
    times = dict(spans.group_by(pl.col("value") & KIND).agg(pl.col("duration").sum()).iter_rows())
    forward, backward = (int(times.get(SPANS[phase], 0)) for phase in ("FORWARD", "BACKWARD"))
    return PhaseBalance(forward, backward, True) if forward and backward else None
