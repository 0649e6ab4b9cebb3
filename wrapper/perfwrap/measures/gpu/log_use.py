"""How busy the GPUs of a log were, at which power and clocks, from samples alone."""

from __future__ import annotations

from functools import partial

import polars as pl
from msgspec import Struct

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu.gpu_state import Gpu, find_gpus
from perfwrap.timeline.lookup import facts_of, track_samples

IDLE_BELOW = 0.10
"""Utilization below which a sample counts as idle."""
LOADED_FROM = 0.90
"""Utilization from which a sample counts as loaded."""


class GpuUse(Struct, frozen=True):
    """One GPU of a log; shares are of its samples.

    ``work_share`` is the mean utilization from the first sample that is not idle to the last one, None if all are idle;
    ``before_ns`` and ``after_ns`` are the idle times around. ``top_watts`` is the maximum power, ``loaded_watts`` and
    ``loaded_hertz`` are means of the loaded samples, ``top_hertz`` the highest clock known: the card's own, or the
    highest sample. None if not in the log.
    """

    gpu: Gpu
    samples: int
    span_ns: int
    """From the first sample to the last."""
    mean: float
    idle_share: float
    work_share: float | None
    before_ns: int
    after_ns: int
    longest_idle_ns: int
    loaded: int
    top_watts: float | None
    loaded_watts: float | None
    limit_watts: float | None
    loaded_hertz: float | None
    top_hertz: float | None


def find_log_use(evidence: Evidence) -> tuple[GpuUse, ...]:
    """Return each GPU with samples of its utilization."""
    found = (_use(evidence, gpu) for gpu in evidence.get(find_gpus))
    return tuple(use for use in found if use is not None)


def _use(evidence: Evidence, gpu: Gpu) -> GpuUse | None:
    """Return the use of one GPU; None without samples of its utilization."""
    read = partial(track_samples, evidence.timeline, gpu.track)
    rows = read("utilization_share").sort("time")
    if rows.is_empty():
        return None
    works = rows.filter(pl.col("value") >= IDLE_BELOW)["time"]
    first, last = int(rows["time"][0]), int(rows["time"][-1])
    begin, end = (int(works[0]), int(works[-1])) if works.len() else (last, last)
    inside = rows.filter(pl.col("time").is_between(begin, end))["value"] if works.len() else None
    gaps = works.diff().drop_nulls()
    facts = facts_of(evidence.timeline, gpu.track)
    power, clock = read("power_watts").sort("time"), read("sm_clock_hertz").sort("time")
    loaded = rows.filter(pl.col("value") >= LOADED_FROM).select("time")
    of_load = partial(_mean_at, loaded)
    top_clock = _number(facts.get("sm_clock_max_hertz")) or _top(clock)
    return GpuUse(
        gpu=gpu,
        samples=rows.height,
        span_ns=last - first,
        mean=float(rows["value"].mean() or 0.0),  # type: ignore[arg-type]
        idle_share=float((rows["value"] < IDLE_BELOW).mean() or 0.0),  # type: ignore[arg-type]
        work_share=None if inside is None else float(inside.mean() or 0.0),  # type: ignore[arg-type]
        before_ns=begin - first,
        after_ns=last - end,
        longest_idle_ns=max(begin - first, last - end, int(gaps.max() or 0)),  # type: ignore[arg-type]
        loaded=loaded.height,
        top_watts=_top(power),
        loaded_watts=of_load(power),
        limit_watts=gpu.power_limit_watts or _number(facts.get("power_limit_default_watts")),
        loaded_hertz=of_load(clock),
        top_hertz=top_clock,
    )


def _mean_at(moments: pl.DataFrame, samples: pl.DataFrame) -> float | None:
    """Return the mean of the samples that were taken at these moments; None without any."""
    values = samples.join(moments.unique(), on="time", how="semi")["value"]
    return None if values.is_empty() else float(values.mean())  # type: ignore[arg-type]


def _top(samples: pl.DataFrame) -> float | None:
    """Return the largest sample."""
    return None if samples.is_empty() else float(samples["value"].max())  # type: ignore[arg-type]


def _number(text: str | None) -> float | None:
    """Return a fact as a number; None if it is not one."""
    return float(text) if text and text.replace(".", "", 1).isdecimal() else None
