"""What perfwrap itself cost."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from perfwrap.measures.account import Account
from perfwrap.measures.loop_events import thread_spans
from perfwrap.measures.loop_spans import thinned_sums
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import facts_of, samples_of
from perfwrap.timeline.model import Timeline

RECORD_NS = 8_000
"""What one span costs the thread that writes it, its probe included, in a real loop with its cold caches: about
55 us for the seven spans of a step, as scripts/overhead.py measured it (docs/overhead.json)."""

HOT_RECORD_NS = 1_000
"""What a span costs that comes right after others of its kind: ``item()`` under perfwrap less ``item()`` without."""

COLD_PER_STEP = 10
"""Spans of a step that are taken for cold; a step with more of them repeats one kind."""


@dataclass(frozen=True)
class OwnCost:
    """Perfwrap's cost for one trainer's steady loop, and for the whole run."""

    recorded_ns: int
    """Own work that the recorder timed (PERFWRAP spans) on the training thread."""
    probes_ns: int
    """Estimate of the probes' own time: records x cost per record, see above."""
    share: float
    """Both over the whole account."""
    records: int
    """Records of the steady loop on the training thread."""
    monitor_cores: float | None
    """Cores that the monitors used, None when nothing sampled them."""
    journal_bytes: int | None


def find_own_cost(timeline: Timeline, trainer: Trainer, account: Account) -> OwnCost:
    """Return what perfwrap cost a trainer's steady loop."""
    records = (
        thread_spans(timeline, trainer)
        .filter(pl.col("start").is_between(account.start, account.end, closed="left"))
        .height
    )
    records += int(thinned_sums(account)["count"].sum())
    recorded = account.ns["perfwrap"]
    size = facts_of(timeline, trainer.process).get("journal_bytes", "")
    cold = min(records, COLD_PER_STEP * account.segments["step"].n_unique())
    probes = cold * RECORD_NS + (records - cold) * HOT_RECORD_NS
    return OwnCost(
        recorded_ns=recorded,
        probes_ns=probes,
        share=(recorded + probes) / account.total_ns if account.total_ns else 0.0,
        records=records,
        monitor_cores=_monitor_cores(timeline, trainer.host),
        journal_bytes=int(size) if size.isdigit() else None,
    )


def _monitor_cores(timeline: Timeline, host: str) -> float | None:
    """Return the cores that the monitors of a host used, from their own count of processor time."""
    samples = samples_of(timeline, "sidecar", "cpu_seconds", host)
    if samples.height < 2:
        return None
    seconds = (samples["time"][-1] - samples["time"][0]) / 1e9
    return float(samples["value"][-1] - samples["value"][0]) / seconds if seconds > 0 else None
