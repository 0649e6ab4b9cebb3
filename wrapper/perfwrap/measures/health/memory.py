"""The memory of the run's processes and of a trainer's GPU."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.data_loading.workers import worker_processes
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.health.growth import Growth, enough, find_growth
from perfwrap.measures.trainers import Trainer, find_trainers
from perfwrap.timeline.lookup import facts_of, track_samples
from perfwrap.timeline.model import Timeline

METRICS = ("anonymous_bytes", "rss_bytes")
"""A process's memory: anonymous memory first, because mapped files fill memory without harm."""
SHARED_METRIC = "pss_bytes"
"""Memory in which shared pages are divided by the number of their users."""


class ProcessGrowth(Struct, frozen=True):
    """Growth of the memory of a trainer's process, or of all its workers together."""

    growth: Growth
    processes: int
    copied: bool = False
    """Nothing new is allocated, but pages shared with the parent are copied."""


class Allocator(Struct, frozen=True):
    """The samples of torch's allocator for a trainer's GPU: time and value of each series; ``total`` is GPU memory."""

    entity: str
    allocated: pl.DataFrame
    reserved: pl.DataFrame
    peak_allocated: pl.DataFrame
    total: float | None


def is_sampled(timeline: Timeline, process: int, start: int, end: int) -> bool:
    """Return whether a process's memory was sampled long enough to see growth."""
    return enough(_memory(timeline, process), start, end)


def process_growth(timeline: Timeline, trainer: Trainer, start: int, end: int) -> ProcessGrowth | None:
    """Return the steady growth of a trainer's process in [start, end]."""
    found = find_growth(_memory(timeline, trainer.process), start, end)
    return None if found is None else ProcessGrowth(found, 1)


def worker_growth(timeline: Timeline, trainer: Trainer, start: int, end: int) -> ProcessGrowth | None:
    """Return the steady growth of a trainer's DataLoader workers in [start, end], of all that grow together."""
    workers = worker_processes(timeline, trainer)
    own = [_memory(timeline, worker) for worker in workers]
    found = [growth for samples in own if (growth := find_growth(samples, start, end))]
    if found:
        return ProcessGrowth(_sum(found), len(found))
    shared = [track_samples(timeline, worker, SHARED_METRIC) for worker in workers]
    copied = [growth for samples in shared if (growth := find_growth(samples, start, end))]
    return ProcessGrowth(_sum(copied), len(copied), copied=True) if copied else None


def find_allocator(evidence: Evidence, trainer: Trainer) -> Allocator | None:
    """Return the values of torch's allocator; None without values, or if several processes have the same name."""
    timeline = evidence.timeline
    device = facts_of(timeline, trainer.process).get("cuda_device")
    others = [
        facts_of(timeline, other.process).get("cuda_device")
        for other in evidence.get(find_trainers)
        if other.host == trainer.host and other.process != trainer.process
    ]
    if device is None or device in others:
        return None
    tracks = timeline.tracks.filter(pl.col("kind") == "gpu", pl.col("host") == trainer.host)
    own = tracks.filter(pl.col("name") == f"gpu/{device}")["id"]
    if own.is_empty():
        return None
    allocated, reserved, peak = (
        track_samples(timeline, int(own[0]), f"{name}_bytes")
        for name in ("allocated", "reserved", "peak_allocated")
    )
    if allocated.is_empty():
        return None
    total = _total_memory(timeline, tracks, facts_of(timeline, trainer.process).get("cuda_device_uuid", ""))
    return Allocator(f"gpu/{device}", allocated, reserved, peak, total)


def free_memory(timeline: Timeline, host: str) -> float | None:
    """Return the bytes that were free at the end: of the container if it has a limit, otherwise of the host."""
    tracks = timeline.tracks.filter(pl.col("host") == host)
    hosts = tracks.filter(pl.col("kind") == "host")["id"]
    groups = tracks.filter(pl.col("kind") == "cgroup")["id"]
    facts = facts_of(timeline, int(hosts[0])) if hosts.len() else {}
    limit = facts.get("memory_limit_bytes", "")
    if limit.isdecimal() and groups.len():
        used = track_samples(timeline, int(groups[0]), "memory_used_bytes")["value"]
        files = track_samples(timeline, int(groups[0]), "memory_file_bytes")["value"]
        if used.len():
            return float(limit) - float(used[-1]) + (float(files[-1]) if files.len() else 0.0)
    if not hosts.len():
        return None
    available = track_samples(timeline, int(hosts[0]), "memory_available_bytes")["value"]
    return float(available[-1]) if available.len() else None


def _memory(timeline: Timeline, process: int) -> pl.DataFrame:
    """Return the samples of a process's memory."""
    found = [track_samples(timeline, process, metric) for metric in METRICS]
    return found[0] if found[0].height else found[1]


def _sum(found: list[Growth]) -> Growth:
    """Return the total growth of several processes."""
    return Growth(
        sum(one.first for one in found), sum(one.total for one in found), sum(one.per_s for one in found)
    )


def _total_memory(timeline: Timeline, tracks: pl.DataFrame, uuid: str) -> float | None:
    """Return a GPU's memory; torch and the monitors may number GPUs differently, so it is found by its uuid."""
    facts = [facts_of(timeline, track) for track in tracks["id"].to_list()]
    known = [one for one in facts if one.get("memory_total_bytes", "").isdecimal()]
    same = [one for one in known if uuid and uuid.removeprefix("GPU-") in one.get("uuid", "")]
    chosen = same or (known if len(known) == 1 else [])
    return float(chosen[0]["memory_total_bytes"]) if chosen else None
