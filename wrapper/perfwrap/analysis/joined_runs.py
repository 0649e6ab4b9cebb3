"""Handles a run that several launchers joined: writes step tables of a part, aligns clocks, reads many ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from perfwrap import units
from perfwrap.diagnosis.configuration import Choice
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.merged_ranks import with_fleet
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.diagnosis.verdict import only_tables
from perfwrap.errors import PerfwrapError
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.fleet import Fleet, find_fleet
from perfwrap.measures.ranks.host_clocks import ClockOffset, aligned
from perfwrap.measures.steps.step_table import step_table, summary
from perfwrap.measures.trainers import find_trainers
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals import run_journals
from perfwrap.timeline import step_tables
from perfwrap.timeline.model import Timeline
from perfwrap.timeline.step_tables import StepTable

MAX_PARTS = 16
"""Maximum number of launchers whose recordings are all read in full."""
MAX_BYTES = 4 << 30
"""Maximum size of these recordings together: reading needs two to three times as much memory."""
MAX_NAMED = 4


def end_part(folder: Path) -> Path | None:
    """Return the folder whose report is shown when a launcher ends; None when another launcher shows it.

    Each launcher of a joined run first writes the step tables of its own recording, on its own machine.
    """
    own = RunFolder(folder)
    part = own.read_manifest().get("part")
    if not isinstance(part, dict):
        return folder
    condense(own)
    return own.whole.path if part.get("leads") else None


def condense(folder: RunFolder) -> tuple[StepTable, ...]:
    """Write the step tables of a run folder, and return them."""
    evidence = Evidence(run_journals.read(folder))
    made = ((summary(evidence, each), step_table(evidence, each)) for each in evidence.get(find_trainers))
    try:
        step_tables.write(folder.steps, made)
    except OSError as error:
        raise PerfwrapError(
            f"The step tables cannot be written to {folder.steps}: {error.strerror}.",
            "perfwrap needs them to read a run of many ranks. Copy the run to a folder that you can write to.",
        ) from error
    return step_tables.read(folder.steps) or ()


def align_clocks(timeline: Timeline) -> Timeline:
    """Return the timeline with the clocks of its hosts aligned, and a warning that states the accuracy."""
    timeline, offsets = aligned(timeline)
    if not offsets:
        return timeline
    errors = [offset.error_ns for offset in offsets.values() if offset is not None]
    warnings = (*timeline.warnings, *_clock_warnings(timeline.run["hosts"][0], offsets))
    return replace(
        timeline, run={**timeline.run, "clock_uncertainty_ns": max(errors, default=0)}, warnings=warnings
    )


def _clock_warnings(first: str, offsets: Mapping[str, ClockOffset | None]) -> Iterator[str]:
    """Yield how the clocks of the hosts were aligned, and how accurately."""
    known = {host: offset for host, offset in offsets.items() if offset is not None}
    if known:
        apart = max(abs(offset.offset_ns) for offset in known.values())
        error = max(offset.error_ns for offset in known.values())
        least = min(offset.exchanges for offset in known.values())
        certain = all(offset.proven for offset in known.values())
        yield (
            f"The clocks of {_named(list(known))} were aligned with the clock of {first}, by at least "
            f"{units.counted(least, 'exchange')} between their ranks: their wall clocks differed by up to "
            f"{units.duration(apart)}. Times on different machines are comparable to within {units.duration(error)}"
            + ("." if certain else " (an estimate, because the clocks drifted during the run).")
        )
    unknown = [host for host in offsets if host not in known]
    if unknown:
        yield (
            f"The clocks of {_named(unknown)} were aligned with the clock of {first} by their wall clocks only. The "
            "error is unknown: do not compare times on different machines. Durations are not affected."
        )


def _named(hosts: list[str]) -> str:
    """Return the names of the hosts; of many hosts, the first names and a count."""
    if len(hosts) <= MAX_NAMED + 1:
        return ", ".join(hosts)
    return f"{', '.join(hosts[:MAX_NAMED])} and {len(hosts) - MAX_NAMED} other hosts"


def has_many_ranks(folder: RunFolder) -> bool:
    """Return whether a run has too many recordings to read all of them, or has only step tables."""
    parts = folder.parts()
    recorded = sum(map(_recorded_bytes, parts))
    if not recorded:
        return any(any(part.steps.glob("*.parquet")) for part in parts)
    return len(parts) > MAX_PARTS or (len(parts) > 1 and recorded > MAX_BYTES)


def _recorded_bytes(part: RunFolder) -> int:
    return sum(path.stat().st_size for path in part.journal.glob("*.pwj"))


def diagnose_many(folder: RunFolder, overview: bool, choice: Choice) -> tuple[Diagnosis, Timeline]:
    """Return the diagnosis of a large run: all ranks by their step tables, a few ranks in full.

    The ranks read in full are the lowest, those with the most and the least work of their own, and a median one.
    Also returns the timeline of these ranks.
    """
    tables = {table.path: table for part in folder.parts() for table in _tables(part)}
    fleet = find_fleet(list(tables.values()))
    chosen = _chosen(fleet, list(tables.values()))
    if not any(map(_recorded_bytes, chosen)):
        timeline = Timeline(run=folder.read_manifest())
        return with_fleet(Diagnosis(only_tables(), run=timeline.run), fleet), timeline
    timeline = align_clocks(run_journals.read(folder, chosen))
    diagnosis = diagnose(
        timeline,
        skipped=choice.skipped,
        thresholds=choice.thresholds,
        overview=overview,
        account=fleet.account_ns if any(fleet.account_ns.values()) else None,
    )
    return with_fleet(diagnosis, fleet), timeline


def _tables(part: RunFolder) -> tuple[StepTable, ...]:
    """Return a part's step tables; write them again if its launcher did not, or is still running."""
    known = step_tables.read(part.steps)
    unfinished = part.read_manifest().get("end") is None and any(part.journal.glob("*.pwj"))
    return condense(part) if known is None or unfinished else known


def _chosen(fleet: Fleet, tables: list[StepTable]) -> tuple[RunFolder, ...]:
    """Return the parts of the ranks that are read in full."""
    by_work = sorted(fleet.ranks, key=lambda rank: rank.own_ns or 0.0)
    wanted = [*fleet.ranks[:1], *by_work[-1:], *by_work[:1], *by_work[len(by_work) // 2 :][:1]]
    summaries = {id(rank.summary) for rank in wanted}
    folders = {table.path.parent.parent for table in tables if id(table.summary) in summaries}
    return tuple(RunFolder(path) for path in sorted(folders))
