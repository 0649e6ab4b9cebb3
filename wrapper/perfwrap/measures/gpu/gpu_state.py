"""The monitor's samples of each GPU during the steady loop."""

from __future__ import annotations

import re
from functools import partial

import polars as pl
from msgspec import Struct, field

from perfwrap.measures.account.account import find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.recorder.windows import find_windows
from perfwrap.measures.trainers import find_trainers
from perfwrap.timeline.lookup import facts_of, mean_over, track_samples
from perfwrap.timeline.model import Timeline

REASON = "throttle/"
"""Prefix of the series of one reason for reduced clocks."""

NOT_THROTTLING = ("idle", "application_clocks", "sync_boost", "display_clocks")
"""Reasons that are not throttling: nothing to do, or set by a user."""

MIN_REASON_SHARE = 0.05
"""Share of the time from which a reason is named."""

FINER = "buffered/"
"""Prefix of the series that the driver sampled itself."""

OWNER = re.compile(r"^process/\d+/owner$")
"""The fact with the owner of a process on a GPU."""

SECOND_NS = 1_000_000_000

AFTER_WINDOW_NS = SECOND_NS
"""After torch.profiler stopped: some GPU figures are means over the second before."""
MIN_UNDISTURBED_SHARE = 0.5
"""Share of the loop that must remain, so that the part before the window's end is left out."""


class Gpu(Struct, frozen=True):
    """One GPU; figures are means over the steady loop, None if not sampled.

    Utilization is a duty cycle (some kernel ran); it does not show how well the GPU was used. ``activity`` is by unit
    (``ACTIVITIES``), if the GPU reports it: NVIDIA from Hopper on.
    """

    track: int
    name: str
    utilization: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    power_watts: float | None
    throttled_share: float | None
    throttle_reasons: tuple[str, ...]
    power_limit_watts: float | None = None
    activity: dict[str, float] = field(default_factory=dict)
    of_run: bool = False
    """Whether a process of this run was seen on it; False for all GPUs if this is unknown."""
    other_processes: float | None = None
    """Processes of other users or other jobs."""
    other_memory_used_bytes: float | None = None


ACTIVITIES = {
    "sm": "sm_activity_share",
    "occupancy": "sm_occupancy_share",
    "tensor": "tensor_activity_share",
    "fp64": "fp64_activity_share",
    "fp32": "fp32_activity_share",
    "fp16": "fp16_activity_share",
    "dram": "dram_activity_share",
}
"""Series by unit: active multiprocessors, their occupancy by warps, their tensor cores, their other arithmetic by type,
and the memory bandwidth, each as a share of the maximum."""


def find_gpus(evidence: Evidence) -> tuple[Gpu, ...]:
    """Return each GPU that a monitor sampled, with means over the steady loops of all trainers.

    The GPU is idle while torch.profiler starts and stops: the loops begin after its window, if it was an early one.
    """
    trainers = evidence.get(find_trainers)
    accounts = [evidence.get(find_account, trainer) for trainer in trainers]
    start = min((account.start for account in accounts), default=0)
    end = max((account.end for account in accounts), default=0)
    windows = [int(until) for trainer in trainers for until in find_windows(evidence.timeline, trainer)[1]]
    after = max((until for until in windows if start < until < end), default=start) + AFTER_WINDOW_NS
    if windows and end - after >= MIN_UNDISTURBED_SHARE * (end - start):
        start = after
    return gpus_between(evidence.timeline, start, end)


def gpus_between(timeline: Timeline, start: int, end: int) -> tuple[Gpu, ...]:
    """Return the GPUs that a monitor sampled, with means over [start, end)."""
    tracks = timeline.tracks
    counted = tracks.filter(pl.col("kind") == "counter")["parent"].unique().to_list()
    gpus = tracks.filter(pl.col("kind") == "gpu", pl.col("id").is_in(counted)).sort("host", "name")
    return tuple(
        _gpu(timeline, track, name, start, end) for track, name in gpus.select("id", "name").iter_rows()
    )


def _gpu(timeline: Timeline, track: int, entity: str, start: int, end: int) -> Gpu:
    """Return the figures of one GPU."""
    facts = facts_of(timeline, track)
    mean = partial(_mean, timeline, track, start, end)
    names = timeline.tracks.filter(pl.col("kind") == "counter", pl.col("parent") == track)["name"].to_list()
    slowing = [
        name for name in names if name.startswith(REASON) and name.removeprefix(REASON) not in NOT_THROTTLING
    ]
    reasons = sorted(name for name in slowing if (mean(name) or 0.0) >= MIN_REASON_SHARE)
    known = {unit: mean(metric) for unit, metric in ACTIVITIES.items()}
    return Gpu(
        track=track,
        name=f"{facts.get('name', 'GPU')} ({entity})",
        utilization=_evenly(timeline, track, start, end, "utilization_share"),
        memory_used_bytes=mean("memory_used_bytes"),
        memory_total_bytes=_number(facts.get("memory_total_bytes")),
        power_watts=_evenly(timeline, track, start, end, "power_watts"),
        throttled_share=mean("throttled_share"),
        throttle_reasons=tuple(name.removeprefix(REASON) for name in reasons),
        power_limit_watts=_number(facts.get("power_limit_watts")),
        activity={unit: value for unit, value in known.items() if value is not None},
        of_run=any(OWNER.match(key) and value == "run" for key, value in facts.items()),
        other_processes=mean("other_processes"),
        other_memory_used_bytes=mean("other_memory_used_bytes"),
    )


def _evenly(timeline: Timeline, track: int, start: int, end: int, metric: str) -> float | None:
    """Return the mean of the monitor's samples and the driver's, if the driver sampled more often.

    Each second counts equally, however many samples it has.
    """
    samples = pl.concat([track_samples(timeline, track, name) for name in (metric, FINER + metric)])
    inside = samples.filter(pl.col("time").is_between(start, end))
    chosen = inside if inside.height else samples
    seconds = chosen.group_by(pl.col("time") // SECOND_NS).agg(pl.col("value").mean())
    return None if seconds.is_empty() else float(seconds["value"].mean())  # type: ignore[arg-type]


def _number(fact: str | None) -> float | None:
    """Return a fact as a number; None if it is not one."""
    try:
        return float(fact) if fact is not None else None
    except ValueError:
        return None


def _mean(timeline: Timeline, track: int, start: int, end: int, metric: str) -> float | None:
    """Return the mean of a series of the GPU."""
    return mean_over(track_samples(timeline, track, metric), start, end)
