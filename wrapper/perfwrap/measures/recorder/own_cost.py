"""The cost of perfwrap itself.

If detailed recording was paused at times, detailed steps are compared with the steps in the pauses around them: the
extra time is the cost of recording. Otherwise, or if steps differ so much that this is less accurate, the records are
counted, and each costs what scripts/cost/overhead.py measured.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.loop_events import RECORDED, thread_spans
from perfwrap.measures.account.loop_spans import thinned_sums
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.recorder.detail_cost import (
    HOT_RECORD_NS,
    MAX_ERROR_FACTOR,
    RECORD_NS,
    estimated_ns,
    measured_ns,
)
from perfwrap.measures.steps.steps import Steps, find_steps
from perfwrap.measures.trainers import Trainer, training_processes
from perfwrap.timeline.lookup import facts_of, samples_of
from perfwrap.timeline.model import Timeline

PAUSED_STEP_NS = 13_000
"""Cost of a step while recording is paused: about 4 % of a step of 0.3 ms."""

HOT_GAP_NS = 20_000
"""A span that starts this soon after another one of the same thread finds warm caches."""

SAMPLE_NS = 3_000
"""Cost of a sample that a data set makes in the training process: what it reads of tensors passes the recorder."""

COUNTED_PER_STEP = 2
"""What is counted in each step of a pause: the optimizer step and the wait for its batch."""


class ProcessorTime(Struct, frozen=True):
    """Seconds of CPU time of the whole run, of all its processes, including start and end."""

    command: float
    """CPU time of the command, including the recorder: of what was waited for, or of all watched processes if more."""
    recorder: float
    """The recorder's part of it: its start and installation as timed, its records as estimated."""
    monitors: float
    """CPU time of the monitors, including py-spy."""

    @property
    def share(self) -> float:
        """How much more the run used than the command would have used alone."""
        return (self.recorder + self.monitors) / max(1e-9, self.command - self.recorder)


class OwnCost(Struct, frozen=True):
    """The cost of perfwrap for one trainer's steady loop, and for the whole run."""

    recorded_ns: int
    """Own work that the recorder timed (PERFWRAP spans) on the training thread."""
    probes_ns: int
    """The time of the probes."""
    share: float
    """Both over the whole account."""
    low: float
    """Lower bound: 95 % of the resampled blocks, and the error of what is estimated."""
    high: float
    measured: bool
    """Whether detailed steps were compared with pauses; otherwise all is estimated from the number of records."""
    records: int
    """Records of the steady loop on the training thread."""
    monitor_cores: float | None
    """Cores that the monitors used, None if not sampled."""
    journal_bytes: int | None
    processor: ProcessorTime | None = None
    """None if the launcher did not see the end of the run."""


def find_own_cost(evidence: Evidence, trainer: Trainer) -> OwnCost:
    """Return what perfwrap cost a trainer's steady loop."""
    timeline = evidence.timeline
    steps = evidence.get(find_steps, trainer)
    account = evidence.get(find_account, trainer)
    starts = thread_spans(timeline, trainer)["start"].to_numpy()
    records = int(np.count_nonzero(account.holds(starts)))
    records += int(thinned_sums(account).filter(~pl.col("rest"))["count"].sum())
    timed = (pl.col("part") == "perfwrap") & pl.col("operation").is_not_null()
    recorded = round(account.share_of(timed) * account.total_ns)
    size = facts_of(timeline, trainer.process).get("journal_bytes", "")
    measured, estimated = _measured(steps, account), _estimated(records, steps)
    if measured is not None and measured[2] - measured[0] > estimated[2] - estimated[0]:
        measured = None
    # The cost of every step if recording is paused at times, in detail or not.
    base = steps.steady * PAUSED_STEP_NS if account.sums["rest"].any() else 0
    factors = (1 / MAX_ERROR_FACTOR, 1.0, MAX_ERROR_FACTOR)
    low, middle, high = (
        part + factor * base for part, factor in zip(measured or estimated, factors, strict=True)
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
        journal_bytes=int(size) if size.isdecimal() else None,
        processor=_processor_time(evidence),
    )


def _processor_time(evidence: Evidence) -> ProcessorTime | None:
    """Return the CPU time of the whole run; None if the launcher did not write it."""
    timeline = evidence.timeline
    used = timeline.run.get("processor_seconds") or {}
    if used.get("command") is None:
        return None
    spans = timeline.spans.filter(pl.col("operation").is_in(RECORDED)).sort("track", "start")
    gap = pl.col("start") - pl.col("start").shift().over("track")
    hot = spans.select((gap < HOT_GAP_NS).sum()).item() or 0
    summed = timeline.sums.group_by("rest").agg(pl.col("count").sum())
    counts = dict(zip(summed["rest"], summed["count"], strict=True))
    # On a busy machine the start takes much longer than it computes.
    computed = pl.when(pl.col("value") > 0).then("value").otherwise("duration")
    own = timeline.spans.filter(pl.col("operation") == "perfwrap").select(computed.sum()).item() or 0
    records = (spans.height - hot) * RECORD_NS + (hot + counts.get(False, 0)) * HOT_RECORD_NS
    passed = counts.get(True, 0) * PAUSED_STEP_NS / COUNTED_PER_STEP
    samples = _samples_made(timeline, evidence.get(training_processes)) * SAMPLE_NS
    command = max(used["command"], _sampled_seconds(timeline))
    recorder = min((own + records + passed + samples) / 1e9, command)
    return ProcessorTime(command, recorder, used.get("monitors") or 0.0)


def _sampled_seconds(timeline: Timeline) -> float:
    """Return the CPU time of the watched processes, also of those that no parent waited for, such as Ray's workers.

    The time before the first sample of each is missing.
    """
    processes = timeline.tracks.filter(pl.col("kind") == "process", pl.col("role") != "monitor")["id"]
    of_processes = pl.col("parent").is_in(processes.implode())
    series = timeline.tracks.filter(pl.col("kind") == "counter", pl.col("name") == "cpu_cores", of_processes)
    samples = timeline.samples.filter(pl.col("track").is_in(series["id"].implode())).sort("track", "time")
    since = (pl.col("time") - pl.col("time").shift()).over("track")
    return float(samples.select((pl.col("value") * since).sum()).item() or 0) / 1e9


def _samples_made(timeline: Timeline, processes: Collection[int]) -> float:
    """Return how many samples data sets made in these processes themselves, without DataLoader workers."""
    threads = timeline.tracks.filter(pl.col("parent").is_in(processes))["id"].implode()
    is_fetch = (pl.col("operation") == "fetch") & pl.col("track").is_in(threads)
    known = timeline.spans.filter(is_fetch, pl.col("value") > 0)["value"]
    batches = timeline.spans.filter(is_fetch).height + int(timeline.sums.filter(is_fetch)["count"].sum())
    mean = known.mean()
    return batches * mean if isinstance(mean, float) else 0.0


def _estimated(records: int, steps: Steps) -> tuple[float, float, float]:
    """Return low, likely and high nanoseconds of the probes from the number of their records."""
    likely = steps.steady * estimated_ns(records / max(1, steps.steady))
    return likely / MAX_ERROR_FACTOR, likely, likely * MAX_ERROR_FACTOR


def _measured(steps: Steps, account: Account) -> tuple[float, float, float] | None:
    """Return low, likely and high nanoseconds by comparison with pauses; None without enough of them."""
    found = measured_ns(steps.table, account.sums)
    count = steps.table.filter("steady", "detailed").height
    return found and (found[0] * count, found[1] * count, found[2] * count)


def _monitor_cores(timeline: Timeline, host: str) -> float | None:
    """Return the cores that the monitors of a host used, from their own count of CPU time."""
    samples = samples_of(timeline, "sidecar", "cpu_seconds", host)
    if samples.height < 2:
        return None
    seconds = (samples["time"][-1] - samples["time"][0]) / 1e9
    return float(samples["value"][-1] - samples["value"][0]) / seconds if seconds > 0 else None
