"""What perfwrap itself cost.

Where the probes rested now and then, the steps in detail are held against those of the rests around them: what they
take longer is what recording them cost. Elsewhere, and where steps differ so much that this tells less, the records
are counted, and each is taken for what scripts/overhead.py measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from perfwrap.measures.account import Account
from perfwrap.measures.detail_cost import DOUBT, estimated_ns, measured_ns
from perfwrap.measures.loop_events import thread_spans
from perfwrap.measures.loop_spans import thinned_sums
from perfwrap.measures.steps import Steps
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import facts_of, samples_of
from perfwrap.timeline.model import Timeline

REST_STEP_NS = 13_000
"""What a step costs though the probes rest: about 4 % of a step of a third of a millisecond."""


@dataclass(frozen=True)
class OwnCost:
    """Perfwrap's cost for one trainer's steady loop, and for the whole run."""

    recorded_ns: int
    """Own work that the recorder timed (PERFWRAP spans) on the training thread."""
    probes_ns: int
    """The probes' own time."""
    share: float
    """Both over the whole account."""
    low: float
    """Less than this share it hardly was: 95 % of the resampled blocks, and the doubt of what is estimated."""
    high: float
    measured: bool
    """Whether steps in detail were compared with rests; else all is estimated from the number of records."""
    records: int
    """Records of the steady loop on the training thread."""
    monitor_cores: float | None
    """Cores that the monitors used, None when nothing sampled them."""
    journal_bytes: int | None


def find_own_cost(timeline: Timeline, trainer: Trainer, steps: Steps, account: Account) -> OwnCost:
    """Return what perfwrap cost a trainer's steady loop."""
    starts = thread_spans(timeline, trainer)["start"].to_numpy()
    records = int(np.count_nonzero(account.holds(starts)))
    records += int(thinned_sums(account).filter(~pl.col("rest"))["count"].sum())
    timed = (pl.col("part") == "perfwrap") & pl.col("operation").is_not_null()
    recorded = round(account.share_of(timed) * account.total_ns)
    size = facts_of(timeline, trainer.process).get("journal_bytes", "")
    measured, estimated = _measured(steps, account), _estimated(records, steps)
    if measured is not None and measured[2] - measured[0] > estimated[2] - estimated[0]:
        measured = None
    # What every step pays where the probes rest now and then, in detail or not.
    passing_by = steps.steady * REST_STEP_NS if account.sums["rest"].any() else 0
    factors = (1 / DOUBT, 1.0, DOUBT)
    low, middle, high = (
        part + factor * passing_by for part, factor in zip(measured or estimated, factors, strict=True)
    )
    total = max(1, account.total_ns)
    return OwnCost(
        recorded_ns=recorded,
        probes_ns=round(middle),
        share=(recorded + middle) / total,
        low=max(0.0, (recorded + low) / total),
        high=(recorded + high) / total,
        measured=measured is not None,
        records=records,
        monitor_cores=_monitor_cores(timeline, trainer.host),
        journal_bytes=int(size) if size.isdigit() else None,
    )


def _estimated(records: int, steps: Steps) -> tuple[float, float, float]:
    """Return low, likely and high nanoseconds of the probes by the number of their records."""
    likely = steps.steady * estimated_ns(records / max(1, steps.steady))
    return likely / DOUBT, likely, likely * DOUBT


def _measured(steps: Steps, account: Account) -> tuple[float, float, float] | None:
    """Return low, likely and high nanoseconds by comparison with the rests; None without enough of them."""
    found = measured_ns(steps.table, account.sums)
    count = steps.table.filter("steady", "detailed").height
    return found and (found[0] * count, found[1] * count, found[2] * count)


def _monitor_cores(timeline: Timeline, host: str) -> float | None:
    """Return the cores that the monitors of a host used, from their own count of processor time."""
    samples = samples_of(timeline, "sidecar", "cpu_seconds", host)
    if samples.height < 2:
        return None
    seconds = (samples["time"][-1] - samples["time"][0]) / 1e9
    return float(samples["value"][-1] - samples["value"][0]) / seconds if seconds > 0 else None
