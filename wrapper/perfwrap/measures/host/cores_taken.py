"""How much CPU time other programs took from a training."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.host.processors import core_numbers, find_processors
from perfwrap.measures.ranks.concurrent_loops import find_trainers_beside
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import facts_of, mean_over, samples_of
from perfwrap.timeline.model import Timeline

CROWDED_SHARE = 0.10
"""Share of the cores that other programs may use while none is free. Beyond it they determine the step time."""

FULL_SHARE = 0.90
"""From this utilization on, there is no free core."""

MIN_SWITCHES_PER_S = 20.0
"""Involuntary context switches per second of a run that shares its cores: 3 were measured on a quiet machine, 66 to
150 beside three other programs on two cores. A run with its own cores on a busy machine stays below."""

MIN_NAMED_SHARE = 0.1
"""Share of the CPU time of all other programs from which one is named."""
MIN_KNOWN_SHARE = 0.5
"""Share of it that must belong to programs that the monitor saw: in a container it does not see those outside."""
MAX_NAMED = 3

TOTAL = "other_cores"
PROGRAM = r"^program/(.+)/cpu_cores$"
"""Names of the monitor's series about programs that do not belong to the run."""


class OtherPrograms(Struct, frozen=True):
    """The CPU use of other programs while the training needed the cores."""

    cores: float
    """Mean number of cores that they used."""
    share: float
    """The same as a share of ``of_cores``."""
    of_cores: int
    """The cores that the training may use."""
    all_cores: bool
    """Whether these are all cores of the machine."""
    programs: tuple[tuple[str, float], ...]
    """The programs that used most, each with its share of these cores; empty if unknown."""


def find_other_programs(evidence: Evidence, trainer: Trainer) -> OtherPrograms | None:
    """Return what other programs used of a trainer's cores; None if they took none away, or if this is unknown.

    They take cores away if they use a tenth of them, no core is free, and the kernel preempts the training.
    """
    processors = evidence.get(find_processors, trainer)
    switches = processors.involuntary_switches_per_s
    if switches is not None and switches < MIN_SWITCHES_PER_S:
        return None
    use = _core_use(evidence, trainer)
    if use is None or use.busy < FULL_SHARE * use.cores:
        return None
    others = use.busy - use.own
    if others < CROWDED_SHARE * use.cores:
        return None
    start, end = _span(evidence, trainer)
    programs = _programs(evidence.timeline, trainer.host, start, end) if use.all_cores else {}
    named = _named(programs, others, use.cores)
    return OtherPrograms(others, others / use.cores, use.cores, use.all_cores, named)


def find_foreign_load(evidence: Evidence, trainer: Trainer) -> bool | None:
    """Return whether other programs used enough of a trainer's cores to delay it; None if not sampled."""
    use = _core_use(evidence, trainer)
    return None if use is None else use.busy - use.own >= CROWDED_SHARE * use.cores


def find_cores_of_others(evidence: Evidence, trainer: Trainer) -> float:
    """Return the mean number of a trainer's usable cores that other programs took in the steady loop; 0 if unknown.

    With a CPU quota they take none as long as as many cores as the quota stay free.
    """
    use, usable = _core_use(evidence, trainer), evidence.get(find_processors, trainer).usable
    if use is None or usable is None:
        return 0.0
    left = use.cores - max(0.0, use.busy - use.own)
    return max(0.0, min(usable, use.cores) - left)


class CoreUse(Struct, frozen=True):
    """The mean use of the cores that the trainers of a host may use."""

    cores: int
    all_cores: bool
    """Whether these are all cores of the machine."""
    busy: float
    own: float
    """Part of ``busy``: the run's processes."""


def _core_use(evidence: Evidence, trainer: Trainer) -> CoreUse | None:
    """Return the use of a trainer's cores while it and those beside it trained; None if not sampled."""
    processors = evidence.get(find_processors, trainer)
    start, end = _span(evidence, trainer)
    bound = _bound(evidence, trainer)
    busy, cores = processors.busy, processors.online
    all_cores = not bound or cores is None or len(bound) >= cores
    if not all_cores:
        timeline, host = evidence.timeline, trainer.host
        of_each = [_mean(timeline, f"cpu/{core}", "busy_share", host, start, end) for core in sorted(bound)]
        known = [share for share in of_each if share is not None]
        busy, cores = (sum(known), len(bound)) if len(known) == len(bound) else (None, None)
    if not cores or busy is None or processors.tree_busy is None:
        return None
    return CoreUse(cores, all_cores, busy, processors.tree_busy)


def _span(evidence: Evidence, trainer: Trainer) -> tuple[int, int]:
    """Return start and end of the steady loops of the trainers that share the trainer's host."""
    beside = [
        evidence.get(find_account, other)
        for other in evidence.get(find_trainers_beside, trainer)
        if other.host == trainer.host
    ]
    return min(account.start for account in beside), max(account.end for account in beside)


def _bound(evidence: Evidence, trainer: Trainer) -> frozenset[int]:
    """Return the cores that the trainers on this host may use together; empty if unknown."""
    beside = [other for other in evidence.get(find_trainers_beside, trainer) if other.host == trainer.host]
    texts = [facts_of(evidence.timeline, other.process).get("cores", "") for other in beside]
    return frozenset[int]().union(*map(core_numbers, texts)) if all(texts) else frozenset()


def _mean(timeline: Timeline, entity: str, metric: str, host: str, start: int, end: int) -> float | None:
    """Return the mean of a series of the host."""
    return mean_over(samples_of(timeline, entity, metric, host), start, end)


def _programs(timeline: Timeline, host: str, start: int, end: int) -> dict[str, float]:
    """Return the mean number of cores that each other program used, those that used most first.

    A value covers the time since the last reading, so that of the first reading after the loop counts. A program
    without a value at a reading used almost nothing.
    """
    readings = samples_of(timeline, "host", TOTAL, host)["time"]
    later = readings.filter(readings >= end).sort().head(1)
    times = readings.filter((readings > start) & (readings < end)).append(later)
    if times.is_empty():
        return {}
    hosts = timeline.tracks.filter(pl.col("kind") == "host", pl.col("name") == host)["id"]
    names = timeline.tracks.filter(pl.col("kind") == "counter", pl.col("parent").is_in(hosts.to_list()))
    series = names.select("id", pl.col("name").str.extract(PROGRAM).alias("program")).drop_nulls()
    samples = timeline.samples.filter(pl.col("time").is_in(times.to_list()))
    used = samples.join(series, left_on="track", right_on="id").group_by("program").agg(pl.col("value").sum())
    rows = used.sort("value", "program", descending=[True, False]).iter_rows()
    return {str(program): value / times.len() for program, value in rows}


def _named(programs: dict[str, float], others: float, cores: int) -> tuple[tuple[str, float], ...]:
    """Return the programs to name; none if those that were seen explain little of what was used."""
    if sum(programs.values()) < MIN_KNOWN_SHARE * others:
        return ()
    large = [(name, used) for name, used in programs.items() if used >= MIN_NAMED_SHARE * others]
    return tuple((name, min(used, others) / cores) for name, used in large[:MAX_NAMED])
